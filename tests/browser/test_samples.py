"""The first minutes: no documents yet."""

from pathlib import Path
from typing import Any

from playwright.sync_api import expect

SAMPLES = Path(__file__).parents[2] / "data" / "library"


def test_with_no_documents_the_page_says_what_to_do_and_offers_samples(reader: Any) -> None:
    for name in reader.names():
        reader.remove_document(name)
    expect(reader.page.locator("#pt-sample")).to_be_visible()

    reader.send("What is a KV cache?")
    expect(reader.toasts).to_contain_text("no documents")
    expect(reader.composer).to_have_value("What is a KV cache?")

    reader.page.locator("#pt-sample").click()
    count = len([path for path in SAMPLES.iterdir() if not path.name.startswith(".")])
    expect(reader.documents).to_have_count(count)
    expect(reader.page.locator("#pt-sample")).to_be_hidden()
    ready = reader.page.locator('.pt-document[data-state="ready"]')
    expect(ready).to_have_count(count, timeout=120_000)
