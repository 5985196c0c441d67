"""axe-core looks at every page, in light and in dark."""

from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

VIEWS = ("chat", "documents", "latency", "memory")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault_on_any_page(
    scheme: str, library: Any, visit: Callable[..., Any]
) -> None:
    library.ask("How tall is the tower of the lighthouse of Skagen?")
    reader = visit(library.page.url, color_scheme=scheme)
    page = reader.page
    faults = []
    for view in VIEWS:
        page.locator(f'a[data-view="{view}"]').click()
        if view == "documents":
            page.locator(".pt-open-document").first.click()
            page.locator("[data-reading]").wait_for()
        page.wait_for_timeout(1_000)  # what is faded in is there
        for fault in Axe().run(page).response["violations"]:
            if fault["impact"] in ("serious", "critical"):
                where = [node["html"][:160] for node in fault["nodes"][:4]]
                faults.append(f"{view}: {fault['id']} ({fault['help']}): {where}")
    assert not faults, "\n".join(faults)
