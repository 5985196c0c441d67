"""The file of accounts, and the commands that change it."""

import io
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from app import main
from host.errors import AccountRefused
from host.users import Users

PASSWORD = "correct horse 马"
HASH = "$2b$04$" + "a" * 53


@pytest.fixture
def users(tmp_path: Path) -> Users:
    return Users(tmp_path / "users", rounds=4)


def test_a_password_opens_its_own_account_only(users: Users) -> None:
    assert users.add("ada", PASSWORD)
    assert users.add("bob", "another password")
    assert users.verify("ada", PASSWORD)
    assert not users.verify("ada", "another password")
    assert not users.verify("ada", "")
    assert not users.verify("carl", PASSWORD)
    assert not users.verify("", PASSWORD)


def test_the_file_holds_hashes_and_is_for_its_owner_alone(users: Users, tmp_path: Path) -> None:
    users.add("ada", PASSWORD)
    text = (tmp_path / "users").read_text()
    assert text.startswith("ada:$2b$")
    assert PASSWORD not in text
    assert stat.S_IMODE((tmp_path / "users").stat().st_mode) == 0o600


def test_another_process_changes_the_file_and_it_counts_at_once(
    users: Users, tmp_path: Path
) -> None:
    users.add("ada", PASSWORD)
    before = users.credential("ada")
    Users(tmp_path / "users", rounds=4).add("ada", "a new password")
    assert users.credential("ada") != before
    assert users.verify("ada", "a new password")
    assert not users.verify("ada", PASSWORD)
    Users(tmp_path / "users").remove("ada")
    assert users.credential("ada") is None


@pytest.mark.parametrize(
    "name",
    ["", "shared", "local", "Local", "SHARED", "a:b", "../x", "a b", "ä", "x" * 65, "-a", "a\nb"],
)
def test_a_name_that_could_be_something_else_is_refused(users: Users, name: str) -> None:
    with pytest.raises(AccountRefused):
        users.add(name, PASSWORD)
    assert users.names() == []


@pytest.mark.parametrize("password", ["", "short", "x" * 73, "马" * 25])
def test_a_password_that_is_too_short_or_longer_than_bcrypt_reads_is_refused(
    users: Users, password: str
) -> None:
    with pytest.raises(AccountRefused, match="password has at"):
        users.add("ada", password)


@pytest.mark.parametrize(
    "line",
    [
        "ada",
        "ada:secret",
        f":{HASH}",
        f"shared:{HASH}",
        f"local:{HASH}",
        f"a b:{HASH}",
        f"ada:{HASH[:-1]}",
    ],
)
def test_a_line_that_is_no_account_is_named(users: Users, tmp_path: Path, line: str) -> None:
    (tmp_path / "users").write_text(f"# people\n\n{line}\n")
    with pytest.raises(AccountRefused, match="Line 3"):
        users.require()


def halves(text: str) -> list[str | None]:
    """What an editor may leave for a moment: nothing, an empty file, the beginning of one."""
    return [None, "", text[:2], text[:40], text[:-2], text.replace("$2b", "$", 1), "bob"]


def test_a_file_saved_by_half_throws_nobody_out(
    users: Users, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "users"
    users.add("ada", PASSWORD)
    users.add("bob", PASSWORD)
    whole, before = path.read_text(), users.credential("bob")
    assert before
    for half in halves(whole):
        caplog.clear()
        path.unlink() if half is None else path.write_text(half)
        for _ in range(3):
            assert users.credential("bob") == before, half
        assert users.verify("ada", PASSWORD), half
        assert len(caplog.records) == 1, half  # said once for each state of the file
        assert "hold" in caplog.text
        path.write_text(whole)
        assert users.names() == ["ada", "bob"]
    path.write_text("".join(line for line in whole.splitlines(True) if "ada" in line))
    assert users.credential("bob") is None  # a whole file counts at once


def test_a_file_that_is_not_whole_is_not_overwritten(users: Users, tmp_path: Path) -> None:
    users.add("ada", PASSWORD)
    half = (tmp_path / "users").read_text()[:-5]
    (tmp_path / "users").write_text(half)
    with pytest.raises(AccountRefused, match="Line 1"):
        users.add("bob", PASSWORD)
    with pytest.raises(AccountRefused, match="Line 1"):
        users.remove("ada")
    assert (tmp_path / "users").read_text() == half


def test_the_last_account_can_be_removed(users: Users, tmp_path: Path) -> None:
    users.add("ada", PASSWORD)
    server = Users(tmp_path / "users")
    assert server.names() == ["ada"]
    assert users.remove("ada")
    assert server.credential("ada") is None


def test_changes_of_many_processes_at_once_all_count(tmp_path: Path) -> None:
    """Each adds accounts of its own and removes one of them, as `user add` and `remove` do."""
    code = (
        "import sys; from pathlib import Path; from host.users import Users\n"
        "users, who = Users(Path(sys.argv[1]), rounds=4), sys.argv[2]\n"
        "print('here', flush=True); sys.stdin.readline()\n"
        "for n in range(8): users.add(f'{who}{n}', 'a password')\n"
        "assert users.remove(f'{who}3')\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "users"), who],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for who in "abc"
    ]
    for process in processes:  # all are there before one begins
        assert process.stdout
        assert process.stdout.readline() == "here\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    expected = {f"{who}{n}" for who in "abc" for n in range(8) if n != 3}
    assert set(Users(tmp_path / "users").names()) == expected


def test_a_server_without_an_account_would_let_nobody_in(users: Users) -> None:
    with pytest.raises(AccountRefused, match="user add"):
        users.require()


def command(monkeypatch: pytest.MonkeyPatch, text: str, *arguments: object) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    return main([str(argument) for argument in arguments])


def test_the_commands_add_list_and_remove(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--auth", tmp_path / "users", "--data-dir", tmp_path / "var")
    assert command(monkeypatch, PASSWORD + "\n", "user", "add", "ada", *where) == 0
    assert command(monkeypatch, "another one", "user", "add", "ada", *where) == 0
    assert command(monkeypatch, "", "user", "list", *where) == 0
    assert capsys.readouterr().out == "added  ada\nnew password for  ada\nada\n"
    assert Users(tmp_path / "users").verify("ada", "another one")
    assert command(monkeypatch, "", "user", "remove", "ada", *where) == 0
    assert "removed  ada  (0 documents, 0 conversations)" in capsys.readouterr().out
    assert command(monkeypatch, "", "user", "remove", "ada", *where) == 1
    assert "There is no user 'ada'" in capsys.readouterr().err


def test_the_commands_say_what_they_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, "", "user", "list") == 2
    assert "--auth FILE" in capsys.readouterr().err
    assert command(monkeypatch, "short\n", "user", "add", "ada", "--auth", tmp_path / "users") == 1
    assert "at least 8" in capsys.readouterr().err
    assert not (tmp_path / "users").exists()


def test_a_variable_names_the_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Users(tmp_path / "users", rounds=4).add("ada", PASSWORD)
    monkeypatch.setitem(os.environ, "PAGETURN_AUTH", str(tmp_path / "users"))
    assert command(monkeypatch, "", "user", "list") == 0
    assert capsys.readouterr().out == "ada\n"


def test_what_belongs_to_nobody_in_particular_is_not_removed_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--auth", tmp_path / "users", "--data-dir", tmp_path / "var")
    assert command(monkeypatch, "", "user", "remove", "local", *where) == 1
    assert "There is no user 'local'" in capsys.readouterr().err
    assert not (tmp_path / "var").exists()
