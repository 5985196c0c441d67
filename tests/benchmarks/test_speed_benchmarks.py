"""What the speed benchmarks make of what they measure, and how they measure an answer."""

import importlib.util
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import typer

from benchmarks import batch, turns
from benchmarks import engine as engine_benchmark
from benchmarks.answering import answer
from benchmarks.bound import Bound, Rates
from benchmarks.peers.process import Peer, PeerFailed, peers, pythons
from benchmarks.peers.protocol import Run
from benchmarks.prose import Prompts, documents, sentences
from benchmarks.report import Report
from benchmarks.turns import Turn
from engine import Engine, EngineConfig
from engine.coded.teacher_forcing import divergences
from engine.model_config import ModelConfig, Rope

SMOL = ModelConfig(
    "LlamaForCausalLM", layers=30, hidden=576, intermediate=1536, heads=9, kv_heads=3, head_dim=64,
    vocabulary=49152, context_tokens=8192, norm_eps=1e-5, rope=Rope(), tied_head=True,
    qkv_bias=False, output_bias=False, mlp_bias=False, qk_norm=False, sliding_window=None,
)  # fmt: skip


@pytest.fixture(scope="module")
def engine(chat_model: str) -> Iterator[Engine]:
    engine = Engine(EngineConfig(chat_model, device="cpu", kv_memory="64MiB"))
    yield engine
    engine.check()
    engine.shutdown()


def _characters(text: str) -> list[int]:
    return [ord(character) for character in text]


def test_prompts_have_the_wanted_length_and_never_begin_alike() -> None:
    prompts = Prompts(_characters)
    taken = [prompts.take(length) for length in (1, 300, 300, 300, 90_000)]
    assert [len(prompt) for prompt in taken] == [1, 300, 300, 300, 90_000]
    assert len({tuple(prompt[:16]) for prompt in taken[1:]}) == 4


def test_only_sentences_of_paragraphs_are_taken_for_prompts() -> None:
    text = (
        "# A heading of several words\n\nThe first one is here. Is the second\none here? No.\n\n"
        "| a | table | of | words |\n|---|---|---|---|\n\n- an item of a list\n"
    )
    assert sentences(text) == ["The first one is here.", "Is the second one here?"]
    assert len(documents()) >= 5


def test_divergence_is_that_of_the_definition() -> None:
    right = torch.tensor([[0.0, 0.0], [2.0, 1.0]])
    other = torch.tensor([[0.0, math.log(3)], [2.0, 1.0]])
    kl, same = divergences(torch.log_softmax(right, dim=-1), other)
    # Halves against a quarter and three quarters.
    expected = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert kl.tolist() == pytest.approx([expected, 0.0], abs=1e-6)
    assert same.tolist() == [False, True]


def test_a_rate_counts_the_tokens_after_the_first_while_all_answers_run() -> None:
    alone = Run([[1, 2, 3]], [(1.0, 1), (1.5, 1), (2.0, 1)])
    assert alone.ttft_s == 1.0
    assert alone.decode_tokens_per_s == pytest.approx(2.0)
    two = Run([[1, 2, 3], [4, 5, 6]], [(1.0, 1), (2.0, 2), (3.0, 2), (4.0, 1)])
    assert two.decode_tokens_per_s == pytest.approx(2.0)


def test_streams_are_counted_together_while_all_of_them_run() -> None:
    first = [(0.0, 1), (1.0, 1), (2.0, 1), (3.0, 1)]
    second = [(1.0, 1), (2.0, 1), (3.0, 1), (5.0, 1)]
    found = batch.together([first, second])
    assert found.decode_tokens_per_s == pytest.approx(2.0)  # 4 tokens from 1 s to 3 s
    assert 1.0 < found.token_gap_p95_s <= 2.0


def test_ratios_of_speeds_compare_the_same_case() -> None:
    report = Report()
    for case, ours, theirs in (("128", 300.0, 100.0), ("4000", 50.0, 100.0)):
        report.add(case, "pageturn", decode_tokens_per_s=ours)
        report.add(case, "llama.cpp", decode_tokens_per_s=theirs)
    ratio = engine_benchmark._versus(report, "decode_tokens_per_s", "llama.cpp")
    assert ratio == {"128": 3.0, "4000": 0.5}
    assert engine_benchmark._versus(report, "decode_tokens_per_s", "openvino") == {}


def test_ratios_of_turns_say_how_much_quicker_the_session_is() -> None:
    found = {
        (2, "session"): Turn(0.1, 0.5, 139, 101),
        (50, "session"): Turn(0.2, 0.6, 6859, 101),
        (50, "turn"): Turn(4.0, 4.8, 0, 6960),
    }
    made = turns.ratios(found, [2, 50])
    assert made["ttft_vs_turn"] == {"50": pytest.approx(20.0)}
    assert made["turn_vs_turn"] == {"50": pytest.approx(8.0)}
    assert made["ttft_last_vs_second"] == {"session": pytest.approx(2.0)}
    assert "ttft_vs_openvino" not in made


def test_operations_are_those_of_the_default_model() -> None:
    bound = Bound(SMOL, Rates(1e12, 1e10), weights_bytes=10**8, kv_token_bytes=23_040)
    head = 2 * 576 * 49152
    # 106.2 million weights outside the embedding, and 4 x 9 x 64 x 30 operations a key.
    assert bound.step_flops(0, 1) - head == pytest.approx(2 * 106.2e6 + 69_120, rel=1e-3)
    grown = bound.step_flops(1000, 1) - bound.step_flops(0, 1)
    assert grown == pytest.approx(69_120_000)
    whole = bound.step_flops(0, 5) - head
    assert whole == pytest.approx(sum(bound.step_flops(n, 1) - head for n in range(5)))


def test_a_bound_is_the_slower_of_computing_and_reading() -> None:
    reading = Bound(SMOL, Rates(1e15, 1e10), weights_bytes=10**8, kv_token_bytes=20_000)
    assert reading.step_s(999, 1) == pytest.approx(0.01 + 0.002)
    computing = Bound(SMOL, Rates(1e9, 1e15), weights_bytes=10**8, kv_token_bytes=20_000)
    assert computing.step_s(0, 10) == pytest.approx(computing.step_flops(0, 10) / 1e9)
    first, whole = computing.turn_s(100, 10, generated=3)
    assert first == computing.step_s(100, 10)
    rest = computing.step_s(110, 1) + computing.step_s(111, 1)
    assert whole == pytest.approx(first + rest)
    assert computing.without_kv_s(110, 3)[1] > whole


def test_a_peer_that_cannot_be_had_is_named_and_left_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with peers(["llama.cpp"], {"llama.cpp": str(tmp_path / "python")}, tmp_path, 1) as found:
        assert found == {}
    assert "llama.cpp is left out" in capsys.readouterr().out


@pytest.mark.skipif(
    importlib.util.find_spec("openvino_genai") is not None, reason="it is installed here"
)
def test_a_peer_that_is_not_installed_says_what_is_missing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with peers(["openvino"], {}, tmp_path, 1) as found:
        assert found == {}
    assert "openvino-genai cannot be imported" in capsys.readouterr().out


def test_a_peer_that_fails_is_an_error_with_its_words(tmp_path: Path) -> None:
    peer = Peer("pageturn", sys.executable, tmp_path, 1)
    try:
        with pytest.raises(PeerFailed, match=r"config\.json"):
            peer.run([[1, 2, 3]], 2)
    finally:
        peer.close()


def test_pythons_of_peers_are_read_by_name() -> None:
    assert pythons(["llama.cpp=/a/python"]) == {"llama.cpp": "/a/python"}
    for wrong in ("llama.cpp", "vllm=/a/python", "openvino="):
        with pytest.raises(typer.BadParameter, match="NAME=PATH"):
            pythons([wrong])


def test_an_answer_has_the_wanted_length_where_the_model_would_end_it(engine: Engine) -> None:
    session = engine.open()
    question = engine.format.user("Say only: yes.", first=True)
    given = answer(engine, session, question, 60)
    engine.close(session)
    stops = set(given.tokens) & engine.format.stop_tokens
    assert stops, "the question was chosen so that the model ends its answer"
    assert len(given.tokens) == sum(count for _, count in given.steps) == 60
    assert given.steps == sorted(given.steps)
    assert given.stats.prompt_tokens == len(question)


def test_conversations_at_once_all_get_their_answers(engine: Engine) -> None:
    prompts = [engine.format.user(f"Count to {n}.", first=True) for n in (5, 6, 7)]
    found = batch.ours(engine, prompts, 12)
    assert found.decode_tokens_per_s > 0
    assert found.token_gap_p95_s > 0
    assert not engine.session_list()
