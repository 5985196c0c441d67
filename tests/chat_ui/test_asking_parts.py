"""The drawer, the first questions, an edit, and the bars of what a turn cost."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from chat.errors import BadOption
from chat.options import AskOptions
from chat.stats import TurnStats
from chat.suggestions import Topic
from chat.ui import settings
from chat.ui.asking import Asking
from chat.ui.begin import suggested, suggestions
from chat.ui.i18n import EN, ZH
from chat.ui.sources import sources
from chat.ui.spent import spent, time_parts, token_parts
from chat.views import CitationView, TurnView
from retrieval.views import DocumentView

MakeTurn = Callable[..., TurnView]
MakeDocument = Callable[..., DocumentView]
STATS = TurnStats(
    ttft_s=0.9,
    retrieve_s=0.2,
    queue_s=0.1,
    prefill_s=0.6,
    decode_s=2.0,
    prompt_tokens=1000,
    cached_tokens=700,
    static_tokens=25,
    computed_tokens=300,
    generated_tokens=41,
    kv_pages=65,
    kv_bytes=24_000_000,
    device_bytes_before=1_000_000_000,
    device_bytes_after=1_100_000_000,
    device_bytes_peak=1_200_000_000,
)


def test_what_the_drawer_shows_is_what_it_says(document: MakeDocument) -> None:
    options = AskOptions(
        temperature=0.5, top_p=0.9, max_tokens=64, read=3, seed=7, rewrite="on", documents=("d1",)
    )
    assert settings.options_of(settings.shown(options), [document()]) == options
    assert settings.options_of(settings.shown(AskOptions()), []) == AskOptions()


def test_a_document_that_is_gone_or_anothers_is_not_asked(document: MakeDocument) -> None:
    chosen = settings.shown(AskOptions(documents=("d1", "gone")))
    assert settings.options_of(chosen, [document()]).documents == ("d1",)
    assert settings.options_of(chosen, []).documents is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1}, {"temperature": 101}, {"min_p": 1}, {"seed": -1}, {"top_p": 0},
        {"max_tokens": 0}, {"read": 0}, {"answer": "loudly"},
    ],
)  # fmt: skip
def test_nonsense_from_a_browser_is_refused(wrong: dict[str, object]) -> None:
    chosen = settings.shown(AskOptions())._replace(**wrong)
    with pytest.raises(BadOption, match=next(iter(wrong))):
        settings.options_of(chosen, [])


def test_what_is_kept_of_a_conversation_and_refused_by_now_gives_way_to_the_defaults() -> None:
    stored = AskOptions(temperature=0.5, documents=("d1",)).to_json() | {"min_p": 1.0}
    assert AskOptions.from_json(stored) == AskOptions(documents=("d1",))


def test_documents_of_one_title_are_told_apart_by_name(document: MakeDocument) -> None:
    two = [document(), document(id="d2", name="other.pdf"), document(id="d3", title="Alone")]
    refused = document(id="d4", state="refused")
    assert settings.choices([*two, refused]) == [
        ("Sizes (sizes.pdf)", "d1"),
        ("Sizes (other.pdf)", "d2"),
        ("Alone", "d3"),
    ]


def test_a_first_question_is_in_the_language_of_its_document() -> None:
    assert suggested(Topic("Tea", "Harvest")) == "What does “Tea” say about “Harvest”?"
    assert suggested(Topic("Tea", "")) == "What is “Tea” about?"
    assert suggested(Topic("Tea", "Why is it green?")) == "Why is it green?"
    assert suggested(Topic("茶", "采摘")) == "《茶》关于“采摘”说了什么？"


def test_first_questions_are_text_and_none_is_twice() -> None:
    shown = suggestions([Topic("<b>", ""), Topic("<b>", "")])
    assert "<b>" not in shown
    assert shown.count("<button") == 1
    assert suggestions([]) == ""


def test_what_is_asked_in_anothers_place_follows_what_was_before_it(turn: MakeTurn) -> None:
    turns = [turn(turn=name) for name in ("a", "b", "c")]
    asking = Asking("How?", AskOptions(), instead_of="b")
    assert [view.turn for view in asking.follows(turns)] == ["a"]
    assert Asking("How?", AskOptions()).follows(turns) == turns


def test_the_parts_of_a_turn_are_all_of_it() -> None:
    assert sum(part.amount for part in token_parts(STATS)) == STATS.prompt_tokens
    assert [part.amount for part in time_parts(STATS)] == [0.2, 0.1, 0.6, 2.0]
    shown = spent(STATS, EN)
    for figure in ("2.9 s", "1,000", "675", "41 tokens", "65 pages", "24 MB", "peak 1.2 GB"):
        assert figure in shown, figure


def test_a_part_that_did_not_happen_takes_no_room_and_is_named() -> None:
    shown = spent(replace(STATS, queue_s=0.0), ZH)
    assert "pt-part_queue" not in re.findall('<div class="pt-bar".*?</div>', shown)[0]
    assert "排队" in shown


def test_the_page_of_a_pdf_is_offered_with_the_ranges_of_its_words(
    turn: MakeTurn, citation: Callable[..., CitationView]
) -> None:
    twice = (citation(), citation(support_start=100, support_end=110))
    shown = sources(turn(citations=twice), EN, {"d1"})
    ranges = [f"{one.support_start}-{one.support_end}" for one in twice]
    assert f'src="pages/d1/3.png?words={",".join(ranges)}"' in shown
    assert "<img" not in sources(turn(citations=twice), EN, {"d2"})
    removed = sources(turn(citations=(citation(removed=True),)), EN, {"d1"})
    assert "<img" not in removed
