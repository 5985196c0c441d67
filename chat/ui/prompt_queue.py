"""Gradio's queue of calls, woken by what comes in."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from gradio.queueing import Queue
from gradio.utils import run_coro_in_background, set_task_name

if TYPE_CHECKING:
    import gradio as gr
    from gradio.queueing import Event, EventQueue

_PROGRESS_S = 5.0


class PromptQueue(Queue):  # type: ignore[misc]
    """Starts a call when it comes in, and waits without looking while there is none.

    Gradio's own looks for calls a thousand times a second, which takes 3% of a core for as long as
    the server runs. Looking less often makes each question wait for the next look.
    """

    def __init__(self, blocks: gr.Blocks) -> None:
        super().__init__(
            live_updates=True,
            concurrency_count=blocks.max_threads,
            update_intervals=1,
            max_size=None,
            blocks=blocks,
        )
        self.progress_update_sleep_when_free = _PROGRESS_S  # nothing here reports progress
        self._changed = asyncio.Event()

    async def push(self, *args: Any, **kwargs: Any) -> Any:
        pushed = await super().push(*args, **kwargs)
        self._changed.set()
        return pushed

    def compute_analytics_summary(self, records: Any) -> dict[str, Any]:
        """Nothing: Gradio would go through its last 10,000 calls after each one, to show nobody."""
        return {}

    def close(self) -> None:
        super().close()
        self._changed.set()

    async def start_processing(self) -> None:
        """Start what may start, after each call that comes in and each that ends."""
        try:
            while not self.stopped:  # type: ignore[has-type]
                await self._changed.wait()
                self._changed.clear()
                while None in self.active_jobs and await self._start_next():
                    pass
        finally:
            self.stopped = True
            self._cancel_asyncio_tasks()

    async def _start_next(self) -> bool:
        """Start the next call that its limit lets run; False where there is none."""
        async with self.delete_lock:
            found = self.get_events()
        if found is None:
            return False
        events, batch, limit = found
        function, now = events[0].fn, time.time()
        self.active_jobs[self.active_jobs.index(None)] = events
        waiting = self.event_queue_per_concurrency_id[limit]
        waiting.current_concurrency += 1
        waiting.start_times_per_fn[function].add(now)
        task = run_coro_in_background(self.process_events, events, batch, now, function)
        # By this name Gradio finds the task when the call is to be cancelled.
        set_task_name(task, events[0].session_hash, function._id, events[0]._id, batch)
        self._asyncio_tasks.add(task)
        task.add_done_callback(partial(self._ended, events, waiting, now))
        self.broadcast_estimations(limit)
        return True

    def _ended(
        self, events: list[Event], waiting: EventQueue, began: float, task: asyncio.Task[None]
    ) -> None:
        self._asyncio_tasks.discard(task)
        begun = waiting.start_times_per_fn
        if began in begun.get(events[0].fn, ()):
            # Cancelled before its first step: Gradio's own clean-up is in the task, and never ran.
            begun[events[0].fn].discard(began)
            if not begun[events[0].fn]:
                del begun[events[0].fn]
            waiting.current_concurrency -= 1
            self.active_jobs[self.active_jobs.index(events)] = None
            for event in events:
                self.event_ids_to_events.pop(event._id, None)
        self._changed.set()
