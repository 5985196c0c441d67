"""Coroutines in tests that may share their thread with another test's event loop."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def run_apart(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run it in a thread of its own: the browser's tests leave a loop in the worker's."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(asyncio.run, coroutine).result()
