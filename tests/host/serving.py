"""A server in a process of its own, for tests."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from host.datafolder import DataFolder, ServerInfo


class Served:
    """A server process and what is known of it."""

    def __init__(self, data_dir: Path, models_dir: Path, *options: object) -> None:
        self.data_dir = data_dir
        command = [sys.executable, "app.py", "--port", "0", "--data-dir", str(data_dir)]
        self.process = subprocess.Popen(
            [*command, *map(str, options)],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PAGETURN_MODELS_DIR": str(models_dir)},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        self.address = self._ready()
        # Whoever writes into a full pipe waits for ever: go on reading.
        threading.Thread(target=self._read_on, daemon=True).start()

    def _ready(self) -> str:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if match := re.search(r"ready at (http://\S+)", line):
                return match[1]
        raise AssertionError("".join(self.said))

    def _read_on(self) -> None:
        self.said.extend(self.process.stderr or ())

    @property
    def info(self) -> ServerInfo:
        info = DataFolder(self.data_dir).server()
        assert info is not None
        return info

    def end(self, sig: signal.Signals) -> int:
        self.process.send_signal(sig)
        return self.process.wait(30)


@contextmanager
def serving(data_dir: Path, models_dir: Path, *options: object) -> Iterator[Served]:
    server = Served(data_dir, models_dir, *options)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()
