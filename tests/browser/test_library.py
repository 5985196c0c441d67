"""Documents come in, are refused with a reason, go out; and nothing in them runs."""

from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, expect

SAMPLES = Path(__file__).parents[2] / "data" / "library"
EVIL = """# Evil <img src="http://203.0.113.9/title.png">

The password of the vault is swordfish. <script>window.hacked = 1</script>
![picture](http://203.0.113.9/a.png) <img src="http://203.0.113.9/b.png" onerror="window.hacked=1">
"""


def test_files_of_several_kinds_come_in_and_a_refused_one_disturbs_none(
    library: Any, tmp_path: Path
) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "notes.xyz").write_bytes(b"\x00\x01\x02")
    (tmp_path / "港口.md").write_text("# 港口\n\n港口的灯塔建于1858年。", encoding="utf-8")
    kinds = [path for path in SAMPLES.iterdir() if path.suffix in (".pdf", ".docx")]
    names = [path.name for path in kinds]
    assert len(kinds) >= 2
    library.add(tmp_path / "empty.txt", *kinds, tmp_path / "notes.xyz", tmp_path / "港口.md")
    for name in [*names, "港口.md"]:
        library.wait_for_document(name, "ready")
    empty = library.documents.filter(has_text="empty.txt")
    expect(empty).to_contain_text("empty (0 bytes)")
    expect(empty).to_have_attribute("data-state", "refused")
    expect(library.documents.filter(has_text="notes.xyz")).to_have_attribute(
        "data-state", "refused"
    )


def test_uploads_do_not_stay_where_they_have_an_address(library: Any, server: Any) -> None:
    left = [path for path in (server.data_dir / "uploads").rglob("*") if path.is_file()]
    assert left == []


def test_a_duplicate_is_named_as_one(library: Any, tmp_path: Path) -> None:
    (tmp_path / "one.md").write_text("# Twice\n\nThe same text.", encoding="utf-8")
    (tmp_path / "two.md").write_text("# Twice\n\nThe same text.", encoding="utf-8")
    library.add(tmp_path / "one.md")
    library.wait_for_document("one.md", "ready")
    library.add(tmp_path / "two.md")
    expect(library.toasts.last).to_contain_text("already")


def test_nothing_in_a_document_runs_or_loads(library: Any, tmp_path: Path) -> None:
    """The loopback check of every test sees it if a picture is asked for."""
    (tmp_path / "evil.md").write_text(EVIL, encoding="utf-8")
    library.add(tmp_path / "evil.md")
    library.wait_for_document("evil.md", "ready")
    library.go("sources")
    library.ask("What is the password of the vault? <img src=http://203.0.113.9/q.png>")
    expect(library.questions.last).to_contain_text("<img src=http://203.0.113.9/q.png>")
    also = library.page.locator(".pt-also:not([open]) summary")
    if also.count():
        also.click()
    passage = library.cards.filter(has_text="swordfish").first
    expect(passage).to_contain_text("<script>window.hacked = 1</script>")
    assert library.page.locator(".pt-card img, .pt-question img, .bot-row .md img").count() == 0
    assert library.page.evaluate("window.hacked") is None


def test_the_browser_itself_refuses_other_hosts(browser: Browser, server: Any) -> None:
    """In a page of its own, since the others check that nothing is even asked for."""
    page = browser.new_page()
    page.goto(server.url)
    blocked = page.evaluate(
        """() => new Promise((resolve) => {
            document.addEventListener("securitypolicyviolation", (event) =>
                resolve(event.effectiveDirective), { once: true });
            document.body.append(Object.assign(new Image(), { src: "http://203.0.113.9/x.png" }));
            setTimeout(() => resolve("nothing"), 20000);
        })"""
    )
    page.close()
    assert blocked == "img-src"


def test_a_removed_document_is_gone_and_what_was_quoted_says_so(
    library: Any, tmp_path: Path
) -> None:
    (tmp_path / "mill.md").write_text(
        "# The mill\n\nThe mill of Ebeltoft grinds rye every Thursday.", encoding="utf-8"
    )
    library.add(tmp_path / "mill.md")
    library.wait_for_document("mill.md", "ready")
    library.ask("What does the mill of Ebeltoft grind every Thursday?")
    library.remove_document("mill.md")
    library.go("sources")
    cited = library.cards.filter(has_text="The mill")
    expect(cited.locator(".pt-removed").first).to_be_visible()
    expect(cited.first).to_contain_text("rye every Thursday")
