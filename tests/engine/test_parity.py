"""The engine against transformers, on the real model in float32."""

import random
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import Engine, Sampling, Session
from tests.engine.driving import compute_in_chunks

TOLERANCE = 1e-3
_SENTENCES = (
    "A key-value cache keeps what attention has already computed.",
    "The ferry to the island leaves at seven in the morning and returns before dark.",
    "She counted 1,024 tokens, 30 layers and 3 heads, and wrote 23,040 bytes in the margin.",
    "def area(radius):\n    return 3.14159 * radius ** 2",
    "Nobody had expected the river to rise so quickly after such a dry summer.",
    "缓存让长对话保持流畅，不必重复计算历史。",
    "Los trenes salen cada hora, salvo los domingos.",
    "If the pages run out, idle conversations give theirs back first.",
)


def _text(words: int, seed: int) -> str:
    rng = random.Random(seed)
    parts: list[str] = []
    while sum(len(p.split()) for p in parts) < words:
        parts.append(rng.choice(_SENTENCES))
    return " ".join(parts)


@pytest.fixture(scope="module")
def theirs(model_folder: Path, real_engine: Engine) -> Any:
    """transformers' own model, reading the folder that the engine converted the file to."""
    from transformers import AutoModelForCausalLM

    (converted,) = model_folder.glob("*.converted")
    return AutoModelForCausalLM.from_pretrained(converted, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def prompts(real_engine: Engine) -> list[list[int]]:
    """20 prompts of 30 to 1,500 tokens, most of them short: the long ones take the time."""
    lengths = [30 + 5 * i + round((1500 - 125) * (i / 19) ** 6) for i in range(20)]
    tokens = [real_engine.format.user(_text(n, seed=n), first=True) for n in lengths]
    return [(list(real_engine.static_tokens) + t)[:n] for t, n in zip(tokens, lengths, strict=True)]


@pytest.fixture
def session(real_engine: Engine) -> Iterator[Session]:
    """A session outside the loop, to run steps on by hand."""
    session = real_engine.open()
    session.tokens.clear()
    yield session
    session.busy = False
    real_engine.close(session)
    real_engine.check()


def _logits(engine: Engine, session: Session, tokens: list[int], chunk: int) -> torch.Tensor:
    """Logits at every position, computed in chunks through the engine's own step."""
    session.tokens += tokens
    return compute_in_chunks(engine, session, repeat(chunk))


@torch.inference_mode()
def _reference(theirs: Any, tokens: list[int]) -> torch.Tensor:
    return theirs(torch.tensor([tokens])).logits[0]


def test_logits_equal_transformers_at_every_position(
    real_engine: Engine, theirs: Any, prompts: list[list[int]]
) -> None:
    for index, tokens in enumerate(prompts):
        session = real_engine.open()
        session.tokens.clear()
        # Whole prompts and chunks of odd sizes by turns.
        chunk = len(tokens) if index % 2 else (7, 33, 100, 256)[index // 2 % 4]
        ours = _logits(real_engine, session, tokens, chunk)
        real_engine.close(session)
        worst = (ours - _reference(theirs, tokens)).abs().max()
        assert worst < TOLERANCE, f"{len(tokens)} tokens in chunks of {chunk}: {worst}"


def test_logits_hold_on_scattered_pages(
    real_engine: Engine, theirs: Any, prompts: list[list[int]], session: Session
) -> None:
    cache = real_engine._cache
    # Take pages and give back every other one in random order, so that the table jumps about.
    taken = cache.pages.allocate(200)
    given = taken[::2]
    random.Random(5).shuffle(given)
    cache.pages.release(given)
    tokens = prompts[17]
    ours = _logits(real_engine, session, tokens, chunk=48)
    steps = {b - a for a, b in zip(session.pages, session.pages[1:], strict=False)}
    assert len(steps) > 10, "the pages were meant to be scattered"
    cache.pages.release(taken[1::2])
    assert (ours - _reference(theirs, tokens)).abs().max() < TOLERANCE


def test_greedy_tokens_equal_transformers(
    real_engine: Engine, theirs: Any, prompts: list[list[int]]
) -> None:
    for tokens in prompts[6:20:4]:
        session = real_engine.open(tokens)
        sampling = Sampling(max_tokens=64)
        answer = real_engine.generate(session, (), sampling).result().tokens
        _assert_greedy(theirs, tokens, answer, real_engine.format.stop_tokens, 64)
        real_engine.close(session)


def test_second_turn_on_kept_kv_equals_transformers(real_engine: Engine, theirs: Any) -> None:
    fmt = real_engine.format
    session = real_engine.open()
    first = real_engine.generate(
        session, fmt.user("Name three rivers in France.", first=True), Sampling(max_tokens=40)
    ).result()
    kept = session.kv_tokens
    new = fmt.end(first.tokens) + fmt.user("Which is the longest?", first=False)
    second = real_engine.generate(session, new, Sampling(max_tokens=64)).result()
    assert second.stats.cached_tokens == kept
    assert second.stats.computed_tokens == len(new) + 1  # and the last sampled token
    prompt = session.tokens[: second.stats.prompt_tokens]
    _assert_greedy(theirs, prompt, second.tokens, fmt.stop_tokens, 64)
    real_engine.close(session)


def _assert_greedy(
    theirs: Any, prompt: list[int], answer: tuple[int, ...], stops: frozenset[int], length: int
) -> None:
    """The answer is transformers' own, wherever its two best logits are further apart than 1e-3."""
    expected = theirs.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=length,
        do_sample=False,
        eos_token_id=list(stops),
        output_logits=True,
        return_dict_in_generate=True,
    )
    tokens = expected.sequences[0, len(prompt) :].tolist()
    for position, (ours, other) in enumerate(zip(answer, tokens, strict=False)):
        if ours != other:
            best = expected.logits[position][0].topk(2).values
            assert best[0] - best[1] < TOLERANCE, f"token {position}: {ours} instead of {other}"
            return
    assert len(answer) == len(tokens)
