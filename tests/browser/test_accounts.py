"""Two people at one server, each in a browser of their own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from host.users import Users
from tests.browser.conftest import LIGHTHOUSE, Reader, Server

PASSWORDS = {"ada": "ada's password", "bob": "bob's password"}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that asks who is there."""
    folder = tmp_path_factory.mktemp("accounts")
    for name, password in PASSWORDS.items():
        Users(folder / "users", rounds=4).add(name, password)
    server = Server(folder / "var", "--auth", folder / "users")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def door(browser: Browser, house: Server) -> Iterator[Callable[..., Page]]:
    """Opens the address in a new browser: what somebody sees who has not logged in."""
    contexts = []

    def knock(**options: object) -> Page:
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.goto(house.url)
        expect(page.get_by_role("button", name="Login")).to_be_visible()
        return page

    yield knock
    for context in contexts:
        context.close()


def enter(page: Page, name: str, password: str = "") -> Reader:
    page.get_by_label("username").fill(name)
    page.get_by_label("password").fill(password or PASSWORDS[name])
    page.get_by_role("button", name="Login").click()
    return Reader(page)


def test_a_wrong_password_keeps_the_door_shut(door: Callable[..., Page]) -> None:
    page = door()
    reader = enter(page, "ada", "a guess")
    expect(page.get_by_text("Incorrect Credentials")).to_be_visible()
    expect(reader.composer).to_have_count(0)
    enter(page, "ada")
    expect(reader.composer).to_be_visible()
    expect(page.get_by_role("button", name="Log out")).to_be_visible()


def test_a_server_with_too_many_passwords_to_check_says_so(door: Callable[..., Page]) -> None:
    page = door()
    busy = {"detail": "Too many people are logging in at once."}
    page.route("**/login", lambda route: route.fulfill(status=429, json=busy))
    with page.expect_event("dialog") as told:
        page.once("dialog", lambda dialog: dialog.accept())
        enter(page, "ada")
    assert told.value.message == busy["detail"]
    page.unroute("**/login")
    expect(enter(page, "ada").composer).to_be_visible()


def test_what_one_person_adds_another_does_not_see(
    door: Callable[..., Page], tmp_path: Path
) -> None:
    (tmp_path / "lighthouse.md").write_text(LIGHTHOUSE)
    ada, bob = enter(door(), "ada"), enter(door(), "bob")
    expect(ada.composer).to_be_visible()
    expect(bob.composer).to_be_visible()
    ada.add(tmp_path / "lighthouse.md")
    ada.wait_for_document("lighthouse.md", "ready")
    ada.ask("When was the lighthouse of Skagen built?")
    expect(ada.page.locator("#pt-history")).to_contain_text("Skagen")
    session = ada.page.evaluate("new URLSearchParams(location.search).get('c')")
    assert session
    # Bob knows the address of Ada's conversation, and gets an empty one.
    bob.page.goto(f"{ada.page.url.split('?')[0]}?c={session}")
    expect(bob.composer).to_be_visible()
    expect(bob.page.locator("#pt-memory .pt-bar")).to_be_attached()  # loaded
    expect(bob.questions).to_have_count(0)
    bob.go("documents")
    expect(bob.documents).to_have_count(0)
    expect(bob.page.locator("body")).not_to_contain_text("Skagen")
    for address in (f"export/{session}.md", f"export/{session}.json"):
        assert bob.page.request.get(f"{bob.page.url.split('?')[0]}{address}").status == 404
        assert ada.page.request.get(f"{ada.page.url.split('?')[0]}{address}").status == 200


def test_two_tabs_of_one_person_stay_consistent(door: Callable[..., Page], tmp_path: Path) -> None:
    (tmp_path / "lighthouse.md").write_text(LIGHTHOUSE)
    one = enter(door(), "ada")
    expect(one.composer).to_be_visible()
    other = Reader(one.page.context.new_page())
    other.open(one.page.url.split("?")[0])
    one.add(tmp_path / "lighthouse.md")  # it may be there from before: then it stays one
    other.go("documents")
    expect(other.documents.filter(has_text="Skagen")).to_have_count(1)
    other.wait_for_document("lighthouse.md", "ready")
    one.remove_document("lighthouse.md")
    expect(other.documents).to_have_count(0)


def test_who_has_logged_out_is_outside(door: Callable[..., Page], house: Server) -> None:
    page = door(viewport={"width": 390, "height": 844})
    reader = enter(page, "bob")
    expect(reader.composer).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("button", name="Login")).to_be_visible()
    assert page.request.get(f"{house.url}/config").status == 401
