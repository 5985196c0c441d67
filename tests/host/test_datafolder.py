import json
import signal
import stat
import subprocess
import sys
import threading

import pytest

from host.datafolder import DataFolder, address
from host.errors import DataFolderBusy, DataFolderUnusable

# A process that holds the folder like a server, says so and waits to be told to go.
HOLDER = """
import sys
from pathlib import Path
from host.datafolder import DataFolder
folder = DataFolder(Path(sys.argv[1]))
folder.prepare()
folder.acquire_to_serve()
if sys.argv[2] == "server":
    folder.publish("127.0.0.1", 4321)
print("held", flush=True)
sys.stdin.readline()
folder.release()
"""


@pytest.fixture
def hold(tmp_path):
    started = []

    def hold(role: str) -> subprocess.Popen:
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(tmp_path), role],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(holder)
        assert holder.stdout.readline() == "held\n"
        return holder

    yield hold
    for holder in started:
        holder.kill()
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()


def test_the_note_of_a_server_can_be_read_by_its_owner_only(tmp_path, hold):
    holder = hold("server")
    note = tmp_path / "server.json"
    assert stat.S_IMODE(note.stat().st_mode) == 0o600
    assert json.loads(note.read_text())["pid"] == holder.pid
    info = DataFolder(tmp_path).server()
    assert info.address == "http://127.0.0.1:4321/"
    assert len(info.token) >= 32


def test_a_second_server_is_refused_with_address_and_process(tmp_path, hold):
    holder = hold("server")
    with pytest.raises(DataFolderBusy) as refused:
        DataFolder(tmp_path).acquire_to_serve()
    assert "http://127.0.0.1:4321/" in str(refused.value)
    assert str(holder.pid) in str(refused.value)


def test_a_killed_server_leaves_a_note_that_nobody_believes(tmp_path, hold):
    holder = hold("server")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "server.json").exists()
    assert DataFolder(tmp_path).server() is None
    assert not (tmp_path / "server.json").exists()
    with DataFolder(tmp_path) as folder:
        folder.acquire_to_serve()


def test_the_end_of_a_server_removes_its_note(tmp_path, hold):
    holder = hold("server")
    holder.communicate("go\n")
    assert not (tmp_path / "server.json").exists()


def test_a_command_goes_to_the_server(tmp_path, hold):
    holder = hold("server")
    info = DataFolder(tmp_path).acquire_or_find_server(lambda _: None)
    assert info.pid == holder.pid


def test_a_command_waits_for_another_one_and_says_so(tmp_path, hold):
    holder = hold("command")
    threading.Timer(0.5, lambda: (holder.stdin.write("go\n"), holder.stdin.flush())).start()
    said = []
    with DataFolder(tmp_path) as folder:
        assert folder.acquire_or_find_server(said.append) is None
    assert len(said) == 1
    assert "waiting" in said[0]


def test_a_command_does_not_wait_for_ever(tmp_path, hold):
    hold("command")
    with pytest.raises(DataFolderBusy, match="Run this one again"):
        DataFolder(tmp_path).acquire_or_find_server(lambda _: None, wait_s=0.3)


def test_a_folder_that_cannot_be_made_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below", "/proc/pageturn"):
        with pytest.raises(DataFolderUnusable, match="--data-dir"):
            DataFolder(type(tmp_path)(path)).prepare()


def test_looking_for_a_server_makes_no_folder(tmp_path):
    assert DataFolder(tmp_path / "none").server() is None
    assert not (tmp_path / "none").exists()


def test_an_address_for_every_interface_is_shown_as_one_that_opens():
    assert address("0.0.0.0", 80) == "http://127.0.0.1:80/"
    assert address("::1", 80) == "http://[::1]:80/"
