"""Several people at one server: each has their own, all have the shared library."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from app import main
from host.client import Client
from host.errors import ServerFailed
from host.users import Users
from tests.host.page_client import PageClient
from tests.host.serving import Served, serving

PASSWORDS = {name: f"{name}'s password" for name in ("ada", "bob", "eve")}
# Words that stand in nobody else's documents and questions.
SECRETS = ("zwitscherfrosch", "krebsscherentee")
NOTE = "# Ponds\n\nThe zwitscherfrosch lives in the northern pond and sings at night.\n"
QUESTION = "Where does the zwitscherfrosch live? (krebsscherentee)"
SHARED_NOTE = "# Bridges\n\nThe bridge of Aarhus is painted green.\n"


class Ada(NamedTuple):
    """What Ada has, as another person might have learned its ids."""

    session: str
    turn: str
    document: str


class House(NamedTuple):
    server: Served
    accounts: Path

    def page(self, name: str) -> PageClient:
        """The page, opened by somebody who has logged in."""
        page = PageClient(self.server.address)
        assert page.login(name, PASSWORDS[name]) == 200
        return page


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, models_dir: Path) -> Iterator[House]:
    """A server for three people, with one document for everyone."""
    folder = tmp_path_factory.mktemp("house")
    for name, password in PASSWORDS.items():
        Users(folder / "users", rounds=4).add(name, password)
    with serving(folder / "var", models_dir, "--auth", folder / "users") as server:
        add(server, folder / "bridge.md", SHARED_NOTE, "shared")
        yield House(server, folder / "users")


def add(server: Served, path: Path, text: str, owner: str) -> dict[str, Any]:
    path.write_text(text)
    with Client(server.info) as client:
        [done] = [event for event in client.add([path], owner) if event["event"] == "file"]
    assert done["outcome"] == "indexed"
    document: dict[str, Any] = done["document"]
    return document


@pytest.fixture(scope="module")
def ada(house: House) -> Ada:
    """Ada has a document and has asked about it."""
    document = add(house.server, house.accounts.with_name("ponds.md"), NOTE, "ada")
    with Client(house.server.info) as client:
        *_, last = client.ask(QUESTION, owner="ada", options={"max_tokens": 8})
    return Ada(last["turn"]["session"], last["turn"]["turn"], document["id"])


def test_without_a_login_there_is_a_form_and_nothing_else(house: House, ada: Ada) -> None:
    with PageClient(house.server.address) as nobody:
        page = nobody.http.get("")
        assert '"auth_required":true' in page.text.replace(" ", "")
        assert "pt-history" not in page.text
        for path in ("config", "gradio_api/info", "gradio_api/file=/etc/hostname"):
            assert nobody.http.get(path).status_code == 401, path
        for path in ("gradio_api/queue/join", "gradio_api/run/predict", "gradio_api/upload"):
            body = {"fn_index": 0, "data": [ada.session], "session_hash": "x"}
            assert nobody.http.post(path, json=body).status_code == 401, path
        assert nobody.http.get("api/documents").status_code == 401


def test_a_wrong_password_and_a_wrong_name_are_refused_alike(house: House) -> None:
    with PageClient(house.server.address) as page:
        answers = [
            page.http.post("login", data={"username": name, "password": password})
            for name, password in (("ada", "guess"), ("carl", "guess"), ("ada", "bob's password"))
        ]
        assert {(answer.status_code, answer.text) for answer in answers} == {
            (400, '{"detail":"Incorrect credentials."}')
        }
        assert page.http.get("config").status_code == 401


def test_everyone_sees_their_own_and_the_shared_documents(house: House, ada: Ada) -> None:
    with Client(house.server.info) as client:
        names = {
            owner: [document["name"] for document in client.documents(owner)]
            for owner in ("ada", "bob", "local")
        }
    assert names == {
        "ada": ["bridge.md", "ponds.md"],
        "bob": ["bridge.md"],
        "local": ["bridge.md"],
    }
    with house.page("ada") as page:
        mine = page.called("load", ada.session)
        assert all(secret in mine for secret in SECRETS)


def test_no_handler_of_the_page_does_anything_with_anothers_ids(house: House, ada: Ada) -> None:
    """Every handler there is gets Ada's ids as inputs and as its event, from Eve's browser."""
    event = {
        "session": ada.session,
        "document": ada.document,
        "turn": ada.turn,
        "id": ada.session,
        "page": 1,
        "title": "taken",
        "text": "taken",
        "question": "taken",
        "version": ada.turn,
        "value": ada.document,
        "index": 0,
    }
    with house.page("eve") as page:
        handlers = page.handlers()
        assert len(handlers) > 5
        for handler in handlers:
            for id in ada:
                told = page.call(handler, [id] * len(handler["inputs"]), event | {"id": id})
                leaked = [secret for secret in SECRETS if secret in told]
                assert not leaked, f"{handler['api_name']} told {leaked}"
    with house.page("ada") as page:  # and all of it is still as it was
        mine = page.called("load", ada.session)
        assert all(secret in mine for secret in SECRETS)
        assert "taken" not in mine
    with Client(house.server.info) as client:
        assert [document["id"] for document in client.documents("ada")][1:] == [ada.document]


def test_anothers_ids_are_not_found_through_the_interface_for_commands(
    house: House, ada: Ada
) -> None:
    with Client(house.server.info) as client:
        with pytest.raises(ServerFailed, match="There is no document"):
            client.remove(ada.document, "bob")
        for stranger in ("bob", "local"):
            with pytest.raises(ServerFailed, match="There is no conversation"):
                list(client.ask("What is it?", session=ada.session, owner=stranger))
        for nobody in ("carl", "../ada", ""):
            with pytest.raises(ServerFailed):
                client.documents(nobody)


def test_no_address_of_the_page_gives_anything_to_another(house: House, ada: Ada) -> None:
    addresses = [f"export/{ada.session}.md", f"export/{ada.session}.json"]
    addresses.append(f"pages/{ada.document}/1.png")
    with PageClient(house.server.address) as nobody, house.page("eve") as eve:
        for address in addresses:
            assert nobody.http.get(address).status_code == 401, address
            assert eve.http.get(address).status_code == 404, address
    with house.page("ada") as page:
        assert SECRETS[0] in page.http.get(addresses[0]).text


def test_the_shared_library_is_changed_by_its_own_command_only(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client(house.server.info) as client:
        [bridge] = client.documents("bob")
        with pytest.raises(ServerFailed, match="shared library"):
            client.remove(bridge["id"], "bob")
        [still] = client.documents("bob")
        assert still["id"] == bridge["id"]

    def command(*arguments: object) -> tuple[int, str]:
        status = main([*map(str, arguments), "--data-dir", str(house.server.data_dir)])
        said = capsys.readouterr()
        return status, said.out + said.err

    assert "bridge.md  (shared)" in command("documents", "--user", "bob")[1]
    assert command("remove", bridge["id"])[0] == 1
    assert command("remove", bridge["id"], "--shared") == (0, "removed  bridge.md\n")
    assert command("add", "--shared", house.accounts.with_name("bridge.md"))[0] == 0
    both = command("add", "--shared", "--user", "bob", house.accounts)
    assert both == (2, "error: Give --user or --shared, not both.\n")


def test_a_new_password_ends_the_logins_made_with_the_old_one(house: House) -> None:
    with house.page("bob") as page:
        assert page.http.get("config").status_code == 200
        Users(house.accounts, rounds=4).add("bob", PASSWORDS["bob"])
        assert page.http.get("config").status_code == 401
        assert page.login("bob", PASSWORDS["bob"]) == 200
        assert page.http.get("config").status_code == 200


def test_logging_out_ends_a_login(house: House) -> None:
    with house.page("bob") as page:
        cookies = dict(page.http.cookies)
        page.http.post("logout")
        again = httpx.get(f"{house.server.address}config", cookies=cookies)
        assert again.status_code == 401


def test_no_address_of_the_page_logs_out_or_in_by_a_link(house: House) -> None:
    with house.page("bob") as page:
        for path in ("logout", "login", "login/"):
            assert page.http.get(path).status_code in (404, 405), path
        assert page.http.post("login/", data={"username": "bob"}).status_code in (404, 405)
        assert page.http.get("config").status_code == 200
        assert page.http.get("gradio_api/token").json() == {"token": None, "user": None}


def test_no_answer_is_open_to_other_origins(house: House) -> None:
    with house.page("bob") as page:
        own = str(page.http.base_url).rstrip("/")
        for origin in (own, "http://localhost:1", "null"):
            for method, path in (("GET", "config"), ("OPTIONS", "config"), ("POST", "login")):
                asked = {"origin": origin, "access-control-request-method": "POST"}
                answer = page.http.request(method, path, headers=asked)
                assert not [name for name in answer.headers if "access-control" in name]
                assert (answer.status_code == 403) is (origin != own), (origin, path)


def send(page: PageClient, name: str, text: str) -> list[str]:
    answer = page.http.post("gradio_api/upload", files={"files": (name, text)})
    paths: list[str] = answer.raise_for_status().json()
    return paths


def take_in(page: PageClient, paths: list[str]) -> str:
    """What the page is told when it hands over files that it has sent."""
    files = [{"path": path, "meta": {"_type": "gradio.FileData"}} for path in paths]
    return page.called("upload", files)


def test_two_people_who_send_the_same_file_at_once_both_get_it(house: House) -> None:
    with house.page("bob") as bob, house.page("eve") as eve:
        text = "# Same\n\nThis very file is sent by two people.\n"
        both = [(page, send(page, "same.md", text)) for page in (bob, eve)]
        for page, paths in both:
            told = take_in(page, paths)
            assert "same.md" in told
        with Client(house.server.info) as client:
            for name in ("bob", "eve"):
                [same] = [one for one in client.documents(name) if one["name"] == "same.md"]
                client.remove(same["id"], name)
        # What is no longer there is told by its name, not by where it would be.
        again = take_in(bob, both[0][1])
        assert "There is no file same.md" in again
        assert str(house.server.data_dir) not in again
    uploads = house.server.data_dir / "uploads"
    assert [path for path in uploads.rglob("*") if path.is_file()] == []


def test_a_removed_user_leaves_nothing(
    house: House, ada: Ada, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last test of this file: Ada goes."""
    data = house.server.data_dir
    assert all(holding(data, secret) for secret in SECRETS)
    with house.page("ada") as page, house.page("bob") as other, Client(house.server.info) as client:
        list(client.ask(QUESTION, session=ada.session, owner="ada", options={"max_tokens": 4}))
        before = client.memory()
        where = ["--auth", str(house.accounts), "--data-dir", str(data)]
        assert main(["user", "remove", "ada", *where]) == 0
        assert capsys.readouterr().out == "removed  ada  (1 document, 1 conversation)\n"
        assert page.http.get("config").status_code == 401
        assert page.login("ada", PASSWORDS["ada"]) == 400
        assert other.http.get("config").status_code == 200
        after = client.memory()
        assert after["pages_sessions"] + after["pages_cached"] < (
            before["pages_sessions"] + before["pages_cached"]
        )
        assert [document["name"] for document in client.documents("bob")] == ["bridge.md"]
    # Soon after a removal the indexes and the database's log hold nothing of it any more.
    deadline = time.monotonic() + 60
    while any(holding(data, secret) for secret in SECRETS):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert "ada" not in house.accounts.read_text()


def test_a_login_outlives_the_server(
    tmp_path_factory: pytest.TempPathFactory, models_dir: Path
) -> None:
    folder = tmp_path_factory.mktemp("restarted")
    Users(folder / "users", rounds=4).add("ada", PASSWORDS["ada"])
    options = ("--auth", folder / "users")
    with serving(folder / "var", models_dir, *options) as server:
        with PageClient(server.address) as page:
            assert page.login("ada", PASSWORDS["ada"]) == 200
            cookies = dict(page.http.cookies)
        server.end(signal.SIGTERM)
    with serving(folder / "var", models_dir, *options) as server:
        again = httpx.get(f"{server.address}config", cookies=cookies)
        assert again.status_code == 200
        [token] = cookies.values()
        assert holding(folder / "var", token) == []


def holding(folder: Path, word: str) -> list[str]:
    """The files below a folder that hold a word, in any case."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if word.encode() in path.read_bytes().lower()]
