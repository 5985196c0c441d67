"""The command line as a person runs it: a process of its own, on a data folder of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def run(models_dir: Path) -> Run:
    """run("documents", "--json", PAGETURN_PORT="1") -> the finished process, as text."""

    def run(*arguments: object, timeout_s: float = 120, **variables: str) -> object:
        return subprocess.run(
            [sys.executable, "app.py", *map(str, arguments)],
            cwd=REPOSITORY,
            env={**os.environ, "PAGETURN_MODELS_DIR": str(models_dir), **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    return run
