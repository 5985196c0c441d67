"""A running server, its page, its interface for our commands, and its end."""

import json
import re
import signal
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app import main
from host.client import Client
from tests.host.serving import Served, serving

NOTE = """# Pages

A page of the cache holds sixteen tokens. A page that nobody uses goes back to the pool, and the
pool counts free pages, cached pages and pages in use.
"""
QUESTION = "How many tokens does a page hold?"


@pytest.fixture(scope="module")
def served(tmp_path_factory, models_dir) -> Iterator[Served]:
    """A server on an empty data folder."""
    with serving(tmp_path_factory.mktemp("served") / "var", models_dir) as server:
        yield server


@pytest.fixture(scope="module")
def with_note(served, run) -> Served:
    """The server with one document, which was added through it."""
    note = served.data_dir.parent / "pages.md"
    note.write_text(NOTE)
    done = run("add", note, "--data-dir", served.data_dir)
    assert (done.returncode, done.stdout) == (0, "indexed  pages.md  (1 page, 1 passage)\n")
    return served


def _ask(server: Served, question: str, **more: Any) -> list[dict[str, Any]]:
    with Client(server.info) as client:
        return list(client.ask(question, **more))


def test_the_printed_address_answers_with_the_page(served):
    response = httpx.get(served.address)
    assert response.status_code == 200
    assert "Pageturn" in response.text


@pytest.mark.parametrize("path", ["", "api/documents"])
def test_a_foreign_host_name_is_refused(served, path):
    token = {"Authorization": f"Bearer {served.info.token}"}
    response = httpx.get(served.address + path, headers={"Host": "evil.example", **token})
    assert response.status_code == 421


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Bearer", "Basic x"])
def test_without_the_token_nothing_is_told(served, header):
    headers = {} if header is None else {"Authorization": header}
    for method, path in (("GET", "documents"), ("GET", "memory"), ("DELETE", "documents/x")):
        assert (
            httpx.request(method, f"{served.address}api/{path}", headers=headers).status_code == 401
        )
    for path in ("add", "ask"):
        assert (
            httpx.post(f"{served.address}api/{path}", headers=headers, json={}).status_code == 401
        )


def test_commands_go_to_the_server(with_note, run):
    listed = run("documents", "--json", "--data-dir", with_note.data_dir)
    assert [document["name"] for document in json.loads(listed.stdout)] == ["pages.md"]


def test_an_answer_streams_and_ends_with_the_turn(with_note):
    events = _ask(with_note, QUESTION, options={"max_tokens": 24})
    kinds = [event["event"] for event in events]
    assert kinds[0] == "started"
    assert kinds[-1] == "finished"
    assert "delta" in kinds
    assert events[-1]["turn"]["session"] == events[0]["session"]
    assert events[-1]["turn"]["state"] == "done"


def test_a_second_turn_computes_its_new_tokens_only(with_note, run):
    options = ["--json", "--max-tokens", "16", "--data-dir", with_note.data_dir]
    first = json.loads(run("ask", QUESTION, *options).stdout)
    assert first["stats"]["static_tokens"] > 0
    second = json.loads(run("ask", QUESTION, "--session", first["session"], *options).stdout)
    history = first["stats"]["prompt_tokens"] + first["stats"]["generated_tokens"]
    # Everything but the last sampled token, whose KV was not written yet.
    assert second["stats"]["cached_tokens"] >= history - 1
    new = second["stats"]["prompt_tokens"] - history
    assert second["stats"]["computed_tokens"] <= new + 1


def test_the_terminal_shows_the_answer_its_sources_and_its_cost(with_note, run):
    done = run("ask", QUESTION, "--max-tokens", "24", "--data-dir", with_note.data_dir)
    assert done.returncode == 0
    cost = (
        r"\d+ reused · \d+ computed · quoted after [\d.]+ s · first token [\d.]+ s · "
        r"[\d.]+ tok/s · KV \d+"
    )
    assert re.search(cost, done.stdout)
    assert "ask --session" in done.stderr


def test_errors_of_the_server_reach_the_command(with_note, run):
    unknown = run("ask", QUESTION, "--session", "nope", "--data-dir", with_note.data_dir)
    assert unknown.returncode == 1
    assert unknown.stderr == "error: There is no conversation 'nope'.\n"
    bad = run("ask", QUESTION, "--temperature", "-1", "--data-dir", with_note.data_dir)
    assert bad.returncode == 2
    missing = run("remove", "0123456789abcdef", "--data-dir", with_note.data_dir)
    assert missing.returncode == 1
    assert "There is no document" in missing.stderr


def test_a_client_that_goes_away_stops_its_turn(with_note):
    with Client(with_note.info) as client:
        # Hot enough to go on to its limit, which is far away.
        options = {"max_tokens": 2000, "temperature": 2.0, "top_p": 0.9, "answer": "generate"}
        events = client.ask(QUESTION, options=options)
        for event in events:
            if event["event"] == "delta":
                break
        started = time.monotonic()
        events.close()
        # The conversation takes the next question as soon as its turn has ended.
        session = _ask(with_note, QUESTION, options={"max_tokens": 4})[0]["session"]
        report = client.memory()
    assert session
    assert time.monotonic() - started < 20
    parts = ("pages_static", "pages_sessions", "pages_cached", "pages_free")
    assert sum(report[part] for part in parts) == report["pages_total"]


def test_a_second_server_on_the_folder_is_refused(served, run):
    refused = run("--port", "0", "--data-dir", served.data_dir)
    assert refused.returncode == 1
    assert served.address in refused.stderr
    assert f"process {served.process.pid}" in refused.stderr


def test_adding_reports_good_and_bad_files_through_the_server(served, run, tmp_path):
    (tmp_path / "good.txt").write_text("Keys and values of a layer lie side by side.")
    (tmp_path / "empty.txt").write_text("")
    done = run("add", tmp_path, "--data-dir", served.data_dir)
    assert done.returncode == 1
    assert "indexed  good.txt  (1 page, 1 passage)" in done.stdout
    assert "refused  empty.txt: The file is empty" in done.stdout


def test_a_backup_of_a_running_server_is_made_and_is_not_restored_over_it(
    with_note, tmp_path, capsys
):
    archive = str(tmp_path / "backup.zip")
    here, elsewhere = ["--data-dir", str(with_note.data_dir)], ["--data-dir", str(tmp_path / "new")]
    assert main(["backup", archive, *here]) == 0
    assert main(["restore", archive, *here, "--replace"]) == 1
    assert with_note.address in capsys.readouterr().err
    assert main(["restore", archive, *elsewhere]) == 0
    capsys.readouterr()
    assert main(["documents", *elsewhere]) == 0
    assert "pages.md" in capsys.readouterr().out


def test_a_server_that_stood_still_for_a_while_goes_on_with_its_answer(with_note):
    with Client(with_note.info) as client:
        events = client.ask(QUESTION, options={"max_tokens": 60})
        session = next(events)["session"]
        while next(events)["event"] != "delta":
            pass
        with_note.process.send_signal(signal.SIGSTOP)  # the nearest to a laptop that sleeps
        try:
            time.sleep(1)
        finally:
            with_note.process.send_signal(signal.SIGCONT)
        assert list(events)[-1]["turn"]["state"] == "done"
        *_, last = client.ask(QUESTION, session=session, options={"max_tokens": 4})
        assert last["turn"]["state"] == "done"


def test_doctor_names_the_server(served, run):
    assert served.address in run("doctor", "--data-dir", served.data_dir).stdout


def test_the_end_of_a_server_saves_what_a_running_turn_has(tmp_path, models_dir, run):
    note = tmp_path / "pages.md"
    note.write_text(NOTE)
    folder = ["--data-dir", tmp_path / "var"]
    run("add", note, *folder)
    with serving(tmp_path / "var", models_dir) as server, Client(server.info) as client:
        # Hot enough to go on to its limit, which is far away.
        options = {"max_tokens": 2000, "temperature": 2.0, "top_p": 0.9, "answer": "generate"}
        events = client.ask(QUESTION, options=options)
        session = next(events)["session"]
        while next(events)["event"] != "delta":
            pass
        assert server.end(signal.SIGINT) == 0
        # The stream ends with the turn as it was saved, not with a broken connection.
        assert list(events)[-1]["turn"]["state"] == "stopped"
        assert "Traceback" not in "".join(server.said)
    assert not (tmp_path / "var/server.json").exists()
    goes_on = run("ask", QUESTION, "--session", session, "--json", "--max-tokens", 8, *folder)
    assert goes_on.returncode == 0, goes_on.stderr


def test_sigterm_ends_a_server_with_open_pages_like_ctrl_c(served):
    """The last test of this file: it ends the server of the others."""
    # An open page holds a stream on which it learns that the server is there.
    with httpx.stream("GET", f"{served.address}gradio_api/heartbeat/page", timeout=20) as beats:
        next(beats.iter_lines())
        started = time.monotonic()
        assert served.end(signal.SIGTERM) == 0
        assert time.monotonic() - started < 10
    said = "".join(served.said)
    assert all(word not in said for word in ("Traceback", "Cancelled", "graceful")), said
    assert not (served.data_dir / "server.json").exists()
