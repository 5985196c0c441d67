"""The page's two languages."""

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect


def test_the_page_is_chinese_for_who_reads_chinese(library: Any, visit: Callable[..., Any]) -> None:
    library.limit(24)
    library.ask("Who painted the ceiling of the Sistine chapel?")
    reader = visit(library.page.url, locale="zh-CN")
    page = reader.page
    expect(page.locator("#pt-new")).to_have_text("新对话")
    expect(reader.composer).to_have_attribute("placeholder", "向文档提问…")
    expect(page.locator("#pt-history")).to_contain_text("1 轮")
    expect(page.locator("#pt-memory")).to_contain_text("权重")
    page.locator(".pt-drawer-button").click()
    expect(page.locator("#pt-drawer h2")).to_have_text("回答设置", use_inner_text=True)
    expect(page.locator("#pt-drawer")).to_contain_text("最长回答", use_inner_text=True)
    expect(page.locator("html")).to_have_attribute("lang", re.compile("^zh"))
    reader.go("documents")
    expect(page.locator("#pt-documents")).to_contain_text("2 个文档")
    reader.go("sources")
    reader.send("   ")
    expect(reader.toasts).to_contain_text("请先输入问题")
    left = page.locator("#pt-columns").inner_text()
    known = "KV RAM Top p English PDF DOCX HTML MD GB MB kB B s"
    shown = library.page.locator("#pt-transcript").inner_text() + library.page.title() + known
    for word in ("Settings", "Search", "Sources", "Documents", "conversation", "Send", "reused"):
        assert word not in left.replace(shown, ""), word


def test_the_language_is_switched_and_stays_switched(library: Any) -> None:
    switch = library.page.locator("[data-language]")
    expect(switch).to_have_text("中文", use_inner_text=True)
    switch.click()
    expect(library.page.locator("#pt-new")).to_have_text("新对话")
    library.page.reload()
    expect(library.page.locator("#pt-new")).to_have_text("新对话")
    library.page.goto(library.page.url.split("?")[0] + "?lang=en")
    expect(library.page.locator("#pt-new")).to_have_text("New conversation")
    expect(library.page.locator("[data-language]")).to_have_text("中文", use_inner_text=True)
