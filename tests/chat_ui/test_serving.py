"""How the page is served."""

import re

from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from fastapi.testclient import TestClient

from chat.ui.serving import LanguageFirst, OwnServerOnly, launch_options, theme


def test_every_answer_tells_the_browser_to_load_from_here_only() -> None:
    app = FastAPI()
    app.add_middleware(OwnServerOnly)

    @app.get("/")
    def page() -> str:
        return "x"

    policy = TestClient(app).get("/").headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert not re.search(r"https?:|\*", policy)


def test_the_looks_need_no_other_host() -> None:
    options = launch_options()
    assert not re.search(r"https?://|@import|url\(", options["head"])
    assert theme()._stylesheets == []
    assert "http" not in theme()._get_theme_css().replace("http://www.w3.org", "")


def test_nothing_is_recorded_and_nothing_monitored() -> None:
    options = launch_options()
    assert options["run_history"] is False
    assert options["enable_monitoring"] is False
    assert options["footer_links"] == []


def test_the_choice_of_language_comes_before_every_other_script_of_the_page() -> None:
    app = FastAPI()
    app.add_middleware(LanguageFirst, path="/")

    @app.get("/", response_class=HTMLResponse)
    def page() -> str:
        return "<html><head><script>gradio</script></head></html>"

    @app.get("/other", response_class=HTMLResponse)
    def other() -> str:
        return "<head>"

    client = TestClient(app)
    shown = client.get("/")
    assert shown.text.index("pageturn_lang") < shown.text.index("gradio")
    assert int(shown.headers["content-length"]) == len(shown.content)
    assert client.get("/other").text == "<head>"
