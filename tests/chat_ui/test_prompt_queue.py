"""Calls of the page: each is started when it comes in, and nothing looks for them."""

import json
import threading
import time
from collections.abc import Iterator

import gradio as gr
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from chat.ui.prompt_queue import PromptQueue
from chat.ui.serving import mount


class Kitchen:
    """A page of one button, whose handler takes its time, one call after the other."""

    def __init__(self) -> None:
        self.busy = threading.Lock()
        self.may_end = threading.Event()
        self.served: list[str] = []
        with gr.Blocks() as self.page:
            order = gr.Textbox()
            gr.Button().click(self.cook, order, order, concurrency_limit=1)
        self.client = TestClient(mount(FastAPI(), self.page), base_url="http://127.0.0.1")

    @property
    def queue(self) -> PromptQueue:
        queue = self.page._queue
        assert isinstance(queue, PromptQueue)
        return queue

    def cook(self, order: str) -> str:
        assert self.busy.acquire(blocking=False), "two at once"
        assert self.may_end.wait(20)
        self.served.append(order)
        self.busy.release()
        return order.upper()

    def order(self, what: str, browser: str) -> None:
        body = {"data": [what], "fn_index": 0, "session_hash": browser}
        self.client.post("/gradio_api/queue/join", json=body).raise_for_status()

    def answer(self, browser: str) -> str:
        stream = self.client.get("/gradio_api/queue/data", params={"session_hash": browser})
        told = [json.loads(line[6:]) for line in stream.text.splitlines() if line[:5] == "data:"]
        [done] = [message for message in told if message["msg"] == "process_completed"]
        return str(done["output"]["data"][0])


@pytest.fixture
def kitchen() -> Iterator[Kitchen]:
    kitchen = Kitchen()
    with kitchen.client:
        yield kitchen


def test_calls_beyond_the_limit_wait_for_those_before_them(kitchen: Kitchen) -> None:
    dishes = ("soup", "fish", "cake")
    for dish in dishes:
        kitchen.order(dish, browser=dish)
    kitchen.may_end.set()
    assert [kitchen.answer(dish) for dish in dishes] == ["SOUP", "FISH", "CAKE"]
    assert kitchen.served == [*dishes]


def test_a_call_that_is_cancelled_before_it_begins_leaves_its_place_to_the_next(
    kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = kitchen.queue
    cancelled = threading.Event()

    def cancel(*_: object) -> None:
        """Stands where a task has been made, and has not had its turn."""
        for task in list(queue._asyncio_tasks):
            cancelled.set()
            task.cancel()

    kitchen.may_end.set()
    with monkeypatch.context() as patched:
        patched.setattr(queue, "broadcast_estimations", cancel)
        kitchen.order("soup", browser="one")
        assert cancelled.wait(20)
    kitchen.order("fish", browser="two")
    until = time.monotonic() + 20
    while kitchen.served != ["fish"]:
        assert time.monotonic() < until, "the place is taken for good"
        time.sleep(0.05)
    assert kitchen.answer("two") == "FISH"
    assert not queue.event_ids_to_events


def test_an_empty_queue_looks_for_nothing(kitchen: Kitchen) -> None:
    kitchen.may_end.set()
    kitchen.order("soup", browser="one")
    assert kitchen.answer("one") == "SOUP"
    looked = []
    look = kitchen.queue.get_events
    kitchen.queue.get_events = lambda: looked.append(1) or look()  # type: ignore[method-assign]
    time.sleep(0.3)
    assert not looked
    kitchen.order("fish", browser="two")
    assert kitchen.answer("two") == "FISH"
    assert looked
