"""Logging in: how fast one may guess, what the cookie is, and when a login ends."""

import asyncio
import json
import stat
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import count, islice, repeat
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from chat.ui.attempts import FORGOTTEN_AFTER_S, FREE_FAILURES, LONGEST_DELAY_S, Attempts, TooMany
from chat.ui.login import Login
from chat.ui.logins import LOGIN_S, Logins
from tests.loops import run_apart


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class People:
    """Accounts in memory."""

    def __init__(self) -> None:
        self.passwords = {"ada": "right", "bob": "right too"}
        self.checked: list[str] = []

    def verify(self, name: str, password: str) -> bool:
        self.checked.append(name)
        return self.passwords.get(name) == password

    def credential(self, name: str) -> str | None:
        password = self.passwords.get(name)
        return f"hash of {password}" if password else None


class House:
    """The routes of a login, and one that says who asks."""

    def __init__(self, path: Path | None = None, people: People | None = None) -> None:
        self.people = people or People()
        self.clock = Clock()
        self.slept_s: list[float] = []
        self.login = Login(self.people, path, attempts=Attempts(self.clock), sleep=self._sleep)
        self.app = FastAPI()
        self.app.include_router(self.login.router())

        @self.app.get("/who")
        def who(request: Request) -> str | None:
            return self.login.owner(request)

    async def _sleep(self, delay_s: float) -> None:
        self.slept_s.append(delay_s)
        self.clock.now_s += delay_s

    def browser(self, address: str = "10.0.0.1", base: str = "http://host") -> TestClient:
        return TestClient(self.app, base_url=base, client=(address, 1))


def enter(browser: TestClient, name: str, password: str) -> httpx.Response:
    return browser.post("/login", data={"username": name, "password": password})


def test_guessing_one_name_gets_slower_until_a_limit_and_the_right_password_still_opens() -> None:
    house = House()
    for guess in range(FREE_FAILURES + 8):
        # Every guess from another address: the delay is by name.
        assert enter(house.browser(f"10.0.1.{guess}"), "ada", "guess").status_code == 400
    assert house.slept_s[:FREE_FAILURES] == [0.0] * FREE_FAILURES
    later = house.slept_s[FREE_FAILURES:]
    assert later == sorted(later)
    assert 0 < later[0] < later[-1] == LONGEST_DELAY_S
    assert enter(house.browser("10.0.0.9"), "ada", "right").status_code == 200
    assert enter(house.browser("10.0.0.9"), "ada", "right").status_code == 200
    assert house.slept_s[-1] == 0.0


def test_guessing_many_names_from_one_address_gets_slower_there_alone() -> None:
    house = House()
    for number in range(FREE_FAILURES + 2):
        enter(house.browser("10.0.0.1"), f"name{number}", "guess")
    assert house.slept_s[-1] > 0
    enter(house.browser("10.0.0.2"), "bob", "right too")
    assert house.slept_s[-1] == 0.0
    # One's own right password doesn't make the address trustworthy.
    enter(house.browser("10.0.0.1"), "bob", "right too")
    enter(house.browser("10.0.0.1"), "carl", "guess")
    assert house.slept_s[-1] > 0


def test_failures_are_forgotten_and_an_ipv6_network_is_one_address() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    for number in range(FREE_FAILURES):
        attempts.failed(f"name{number}", f"2001:db8::{number}")
    assert attempts.delay_s("ada", "2001:db8::ffff") > 0
    assert attempts.delay_s("ada", "2001:db8:0:1::1") == 0
    clock.now_s += FORGOTTEN_AFTER_S + 1
    assert attempts.delay_s("ada", "2001:db8::ffff") == 0


def fill(attempts: Attempts, addresses: Iterator[str]) -> ExitStack:
    """Take places until there is none; gives them back when it is closed."""
    taken = ExitStack()
    with suppress(TooMany):
        for address in islice(addresses, 1000):
            taken.enter_context(attempts.place(address))
    return taken


def test_few_checks_wait_and_one_address_does_not_take_every_place() -> None:
    attempts = Attempts()
    with fill(attempts, repeat("10.0.0.1")):
        with pytest.raises(TooMany), attempts.place("10.0.0.1"):
            pass
        with attempts.place("10.0.0.2"):
            pass
    everywhere = fill(attempts, (f"10.0.1.{number}" for number in count()))
    with everywhere, pytest.raises(TooMany), attempts.place("10.0.0.2"):
        pass
    with attempts.place("10.0.0.1"):
        pass


def test_a_guesser_with_many_connections_is_told_and_nobody_else_waits_for_them() -> None:
    house = House()

    async def try_it() -> None:
        go_on = asyncio.Event()

        async def sleep(delay_s: float) -> None:
            if delay_s:
                await go_on.wait()

        house.login._sleep = sleep

        def browser(address: str) -> httpx.AsyncClient:
            transport = httpx.ASGITransport(house.app, client=(address, 1))
            return httpx.AsyncClient(transport=transport, base_url="http://host")

        async with browser("10.0.0.1") as guesser, browser("10.0.0.2") as other:

            async def guess(client: httpx.AsyncClient, name: str, password: str) -> httpx.Response:
                return await client.post("/login", data={"username": name, "password": password})

            for _ in range(FREE_FAILURES):
                assert (await guess(guesser, "ada", "guess")).status_code == 400
            crowd = [asyncio.create_task(guess(guesser, "ada", "guess")) for _ in range(50)]
            done, waiting = await asyncio.wait(crowd, timeout=30, return_when="FIRST_COMPLETED")
            while len(waiting) > 10:
                more, waiting = await asyncio.wait(waiting, return_when="FIRST_COMPLETED")
                done |= more
            assert {task.result().status_code for task in done} == {429}
            assert all("Try again in a few seconds" in task.result().text for task in done)
            assert all("Retry-After" in task.result().headers for task in done)
            assert (await guess(other, "bob", "right too")).status_code == 200
            go_on.set()
            await asyncio.gather(*waiting)

    run_apart(try_it())


@pytest.mark.parametrize(("base", "secure"), [("http://host", False), ("https://host", True)])
def test_the_cookie_is_for_this_server_alone_and_no_script_sees_it(base: str, secure: bool) -> None:
    answer = enter(House().browser(base=base), "ada", "right")
    [cookie] = answer.headers.get_list("set-cookie")
    parts = {part.strip().lower() for part in cookie.split(";")}
    assert {"httponly", "samesite=strict", f"max-age={LOGIN_S}"} <= parts
    assert ("secure" in parts) is secure


def test_a_login_outlives_a_restart_and_is_kept_as_a_hash(tmp_path: Path) -> None:
    file = tmp_path / "logins.json"
    browser = House(file).browser()
    enter(browser, "ada", "right")
    cookies = dict(browser.cookies)
    [token] = cookies.values()
    assert token not in file.read_text()
    assert "hash of" not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = House(file).browser()
    again.cookies.update(cookies)
    assert again.get("/who").json() == "ada"


def test_a_login_ends_with_its_account_a_new_password_a_logout_or_after_thirty_days(
    tmp_path: Path,
) -> None:
    people, clock = People(), Clock()
    logins = Logins(people, tmp_path / "logins.json", clock)
    ada, bob = logins.begin("ada"), logins.begin("bob")
    assert (logins.get(ada), logins.get(bob)) == ("ada", "bob")
    assert logins.get(None) is None
    assert logins.get("guess") is None
    people.passwords["ada"] = "another"
    assert logins.get(ada) is None
    del people.passwords["bob"]
    assert logins.get(bob) is None
    assert logins.get(logins.begin("bob")) is None  # it went while the password was checked
    ada = logins.begin("ada")
    clock.now_s += LOGIN_S - 1
    assert logins.get(ada) == "ada"
    clock.now_s += 2
    assert logins.get(ada) is None
    ada, also = logins.begin("ada"), logins.begin("ada")
    logins.end("ada")
    assert logins.get(ada) is logins.get(also) is None
    assert json.loads((tmp_path / "logins.json").read_text())["logins"] == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"logins": {"x": {}}, "cookie_id": "y"}'])
def test_a_broken_file_of_logins_means_to_log_in_again(tmp_path: Path, text: str) -> None:
    (tmp_path / "logins.json").write_text(text)
    logins = Logins(People(), tmp_path / "logins.json")
    assert logins.get(logins.begin("ada")) == "ada"


def test_logging_out_is_posted_and_ends_the_login() -> None:
    browser = House().browser()
    enter(browser, "ada", "right")
    cookies = dict(browser.cookies)
    assert browser.get("/logout").status_code == 405
    assert browser.get("/who").json() == "ada"
    assert browser.post("/logout").status_code == 200
    assert not browser.cookies
    browser.cookies.update(cookies)
    assert browser.get("/who").json() is None
