"""What the latency page draws: charts, figures, a table, and the same as CSV."""

import csv
import io
from collections.abc import Callable
from dataclasses import asdict, replace
from urllib.parse import unquote

from chat.stats import TurnStats
from chat.ui import latency
from chat.ui.i18n import EN, ZH
from chat.views import TurnView

MakeTurn = Callable[..., TurnView]


def turns(turn: MakeTurn, stats: TurnStats, count: int = 3) -> list[TurnView]:
    return [
        turn(turn=f"t{number}", stats=replace(stats, cached_tokens=100 * number, total_s=number))
        for number in range(1, count + 1)
    ]


def test_turns_without_stats_keep_their_place_and_are_not_drawn(
    turn: MakeTurn, stats: TurnStats
) -> None:
    rows = latency.measured([turn(stats=None), turn(stats=stats), turn(state="pending")])
    assert [row.number for row in rows] == [2]


def test_cached_and_computed_tokens_are_two_parts_of_one_column(
    turn: MakeTurn, stats: TurnStats
) -> None:
    plot = latency.plots(latency.measured(turns(turn, stats)), EN).tokens
    assert plot.value["mark"] == "bar"
    assert ["3", 300, "reused"] in plot.value["data"]
    assert ["3", 312, "computed"] in plot.value["data"]
    assert plot.properties["y_lim"][1] > 612


def test_a_single_turn_is_a_point_since_a_line_needs_two(turn: MakeTurn, stats: TurnStats) -> None:
    one, two = (
        latency.plots(latency.measured(turns(turn, stats, count)), EN).kv for count in (1, 2)
    )
    assert one.value["mark"] == "point"
    assert two.value["mark"] == "line"


def test_a_long_conversation_gets_an_axis_of_numbers(turn: MakeTurn, stats: TurnStats) -> None:
    plots = latency.plots(latency.measured(turns(turn, stats, 50)), EN)
    assert plots.time.value["datatypes"]["turn"] == "quantitative"
    assert plots.tokens.properties["x_bin"] == 1
    assert plots.kv.properties["caption"] == "over 50 turns"


def test_what_was_not_measured_leaves_a_gap(turn: MakeTurn, stats: TurnStats) -> None:
    rows = latency.measured([turn(stats=replace(stats, ttft_s=0.0, decode_tokens_per_s=0.0))])
    assert latency.plots(rows, EN).rate.value["data"] == [["1", None]]


def test_the_csv_holds_every_field_of_every_turn(turn: MakeTurn, stats: TurnStats) -> None:
    rows = latency.measured(turns(turn, stats))
    read = list(csv.DictReader(io.StringIO(latency.as_csv(rows))))
    assert [int(row["turn"]) for row in read] == [1, 2, 3]
    for row, measured in zip(read, rows, strict=True):
        for name, value in asdict(measured.stats).items():
            assert float(row[name]) == value
    link = latency.table(rows, EN).split('href="data:text/csv;charset=utf-8,')[1].split('"')[0]
    assert unquote(link) == latency.as_csv(rows)


def test_a_question_cannot_be_a_formula_in_a_spreadsheet(turn: MakeTurn, stats: TurnStats) -> None:
    rows = latency.measured([turn(question='=HYPERLINK("http://x")', stats=stats)])
    (row,) = csv.DictReader(io.StringIO(latency.as_csv(rows)))
    assert row["question"].startswith("'=")


def test_a_question_in_the_table_is_text(turn: MakeTurn, stats: TurnStats) -> None:
    shown = latency.table(latency.measured([turn(question="<b>&", stats=stats)]), EN)
    assert "&lt;b&gt;&amp;" in shown
    assert "<b>" not in shown


def test_the_page_says_why_it_is_empty(turn: MakeTurn) -> None:
    assert "No conversation is open" in latency.head(None, [], EN)
    assert "没有打开的对话" in latency.head(None, [], ZH)
    assert "measured yet" in latency.head("A title", [], EN)


def test_the_figures_above_the_charts_are_the_stats_own(turn: MakeTurn, stats: TurnStats) -> None:
    shown = latency.head("Sizes", latency.measured([turn(stats=stats)]), EN)
    for figure in ("1", "79%", "0.31 s", "27 MB"):
        assert f"<dd>{figure}</dd>" in shown
