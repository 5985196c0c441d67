from pathlib import Path

import pytest

from retrieval.errors import Unreadable
from retrieval.parsers.html import html_text, parse_html

GERMAN = "Größere Vögel fressen Frösche für 15,50 €, sagt man in Köln und überall sonst."
RUSSIAN = "Цапля стоит у воды и долго ждёт, пока рыба сама не подплывёт к ней поближе."


def text(page: str) -> str:
    return html_text(page.encode()).text


def page(body: str, charset: str) -> str:
    return f'<html><head><meta charset="{charset}"><title>x</title></head><p>{body}</p></html>'


@pytest.mark.parametrize(
    ("body", "declared", "encoding"),
    [
        (GERMAN, "iso-8859-1", "cp1252"),
        (GERMAN, "utf-8", "cp1252"),
        (GERMAN, "nonsense", "cp1252"),
        (GERMAN, "utf-16", "utf-8"),
        (GERMAN, "windows-1252", "utf-8"),
        (RUSSIAN, "windows-1251", "cp1251"),
        (RUSSIAN, "iso-8859-1", "cp1251"),
        (RUSSIAN, "utf-8", "koi8_r"),
        ("键值缓存保存每一层的键和值，这样不必重新计算。", "gb2312", "gb18030"),
        ("快取保存每一層的鍵和值，不必重新計算。", "x-x-big5", "big5"),
        ("新しい単語を計算するとき、過去の値を読み直します。", "x-sjis", "cp932"),
        ("왜가리는 물가에서 오랫동안 물고기를 기다린다.", "ks_c_5601-1987", "cp949"),
    ],
)
def test_a_page_is_read_whatever_it_declares(body: str, declared: str, encoding: str) -> None:
    assert html_text(page(body, declared).encode(encoding)).text == body


def test_an_xml_declaration_and_a_bom_are_believed() -> None:
    source = f'<?xml version="1.0" encoding="windows-1251"?><html><p>{RUSSIAN}</p></html>'
    assert html_text(source.encode("cp1251")).text == RUSSIAN
    assert html_text(page(GERMAN, "koi8-r").encode("utf-16")).text == GERMAN


def test_noise_is_left_out() -> None:
    body = """<style>a{}</style><script>var x = "words"</script><template>later</template>
    <noscript>switch it on</noscript><!-- comment --><div hidden>hidden</div>
    <p style="display: none">none</p><svg><title>icon</title></svg><select><option>1</select>"""
    assert text(f"<body>{body}<p>Only this</p>") == "Only this"


def test_entities_and_invisible_signs_become_plain_text() -> None:
    assert text("<p>A&nbsp;&amp;&nbsp;B &lt; C, Fr&ouml;sche, hy&shy;phen, &#8364;") == (
        "A & B < C, Frösche, hyphen, €"
    )


def test_code_is_fenced_and_keeps_its_lines() -> None:
    assert text("<p>See:</p><pre><code>a\n  <b>b</b><br>c</code></pre>") == (
        "See:\n\n```\na\n  b\nc\n```"
    )
    assert text("<pre>one ``` two</pre>") == "````\none ``` two\n````"


def test_lists_are_numbered_and_nested() -> None:
    body = "<ol start=3><li>three<li>four<ul><li>inner</ul><li>five</ol>"
    assert text(body) == "3. three\n4. four\n- inner\n5. five"


def test_a_sign_that_links_to_its_own_heading_is_no_text_and_other_links_are() -> None:
    body = """<h2>Ponds<a href="#ponds">\u00b6</a></h2><p>See <a href="#a">[1]</a> and
    <a href="#b"><img src="a.png" alt="a map"></a> and <a href="b.html">»</a></p>"""
    assert text(body) == "## Ponds\n\nSee [1] and a map and »"


def test_merged_cells_are_repeated() -> None:
    body = """<table><caption>Counts</caption>
    <tr><th rowspan=2>Pond</th><th colspan=2>Birds</th></tr>
    <tr><th>heron</th><th>coot</th></tr>
    <tr><td>North<td>1 <i>7</i><td><ul><li>4<li>5</ul></td></tr></table>"""
    assert text(body).split("\n") == [
        "Counts", "", "| Pond | Birds | Birds |", "| --- | --- | --- |",
        "| Pond | heron | coot |", "| North | 1 7 | - 4 - 5 |",
    ]  # fmt: skip


def test_a_title_row_over_the_whole_table_stands_above_it() -> None:
    body = "<table><tr><td colspan=2>Ponds</td></tr><tr><th>a<th>b</tr><tr><td>1<td>2</tr></table>"
    assert text(body) == "Ponds\n\n| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_a_table_that_lays_out_a_page_is_read_as_its_parts() -> None:
    body = """<table><tr><td><h2>Left</h2><p>words</p></td><td>
    <table><tr><td>a<td>b</tr><tr><td>1<td>2</tr></table></td></tr></table>"""
    assert text(body) == "## Left\n\nwords\n\n| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_elements_closed_in_themselves_do_not_swallow_an_xhtml_page() -> None:
    source = '<?xml version="1.0"?><html xmlns="x"><head><title/><script src="a.js"/></head>'
    assert text(f"{source}<body><p>kept</p></body></html>") == "kept"


def test_a_page_without_title_is_called_by_its_first_heading(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text("<h1>Herons <i>and</i> ponds</h1><p>x")
    assert parse_html(path).title == "Herons and ponds"


def test_spans_of_thousands_do_not_multiply_a_page() -> None:
    long = "words " * 100
    body = f"<table><tr><td colspan=9999 rowspan=9999>{long}</td><td>b</td></tr></table>"
    assert len(text(body)) < 3 * len(long)


def test_a_page_that_nests_without_end_is_refused() -> None:
    with pytest.raises(Unreadable, match="20,000 deep"):
        text("<ul><li>" * 300_000 + "x")
    assert text("<div>a</div><br>" * 20_001).count("a") == 20_001
