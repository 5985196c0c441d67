"""The program as people start it: a server in a process of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from host.client import Client
from host.datafolder import DataFolder
from host.settings import load

ROOT = Path(__file__).parents[1]
_POLL_S = 0.1
_END_S = 60


@contextmanager
def serving(data_dir: Path) -> Iterator[tuple[psutil.Process, str]]:
    """A server on a free port of this machine, once it answers: its process and its address."""
    process = subprocess.Popen(
        [sys.executable, "app.py", "--port", "0", "--data-dir", str(data_dir)],
        cwd=ROOT,
        env={**os.environ, "PAGETURN_MODELS_DIR": str(load({}).models_dir.absolute())},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while (info := DataFolder(data_dir).server()) is None:
            if process.poll() is not None:
                raise RuntimeError("The server did not start. Run python app.py doctor.")
            time.sleep(_POLL_S)
        with Client(info) as client:
            client.memory()  # answers when the model is loaded
        yield psutil.Process(process.pid), info.address
        process.send_signal(signal.SIGTERM)
        process.wait(_END_S)
    finally:
        process.kill()
        process.wait()
