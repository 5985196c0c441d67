"""Conversations under the rules of the supported families' chat templates."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import Engine, EngineConfig
from engine.chat_format import ChatFormat
from engine.tokenizer import Tokenizer
from tests.engine.family_templates import CONTROL_TOKENS, LLAMA_3_2, QWEN_3, TEMPLATES

SYSTEM = "Answer briefly."
TURNS = ("What is a page?", "A run of positions.", "And a table?", "It lists pages.", "Why?")
VARIABLES = {"bos_token": "<s>", "eos_token": "</s>"}
NO_SYSTEM_ROLE = "has no system role"
MOVES = "moves the system prompt to the newest message"
DROPS_THINKING = "drops the thinking of older answers"
OPENS_THINKING = "opens the thinking for a new answer"
READS_SWITCHES = "reads switches such as /no_think"
DIFFERENCES = {
    "smollm-3": [READS_SWITCHES],
    "gemma-2": [NO_SYSTEM_ROLE],
    "mistral-v0.3": [MOVES],
    "qwen-3": [DROPS_THINKING],
    "deepseek-r1": [OPENS_THINKING, DROPS_THINKING],
}


@pytest.fixture(scope="module")
def folder(tokenizer_files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default tokenizer with the families' control tokens added."""
    folder = tmp_path_factory.mktemp("control-tokens")
    data = json.loads((tokenizer_files / "tokenizer.json").read_text())
    for index, token in enumerate(CONTROL_TOKENS):
        # Qwen's files do not mark the thinking tokens as special: they must be caught all the same.
        data["added_tokens"].append(
            {"id": 49152 + index, "content": token, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": "think" not in token}
        )  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(data))
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer(folder)


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), bos_token="<s>", eos_token="</s>"
    )


def _rendered(theirs: Any, template: str, system: str, *turns: str) -> list[int]:
    """The template's own rendering; without a system text there is no system message."""
    roles = ["user", "assistant"] * len(turns)
    messages = [{"role": r, "content": t} for r, t in zip(roles, turns, strict=False)]
    first = [{"role": "system", "content": system}] if system else []
    return list(
        theirs.apply_chat_template(
            first + messages, chat_template=template,
            add_generation_prompt=True, tokenize=True, return_dict=False,
        )
    )  # fmt: skip


def _conversation(fmt: ChatFormat, system: str, *turns: str) -> list[int]:
    """The same from fragments, as the engine appends them; answers are known as text only."""
    tokens = fmt.system(system)
    for index, text in enumerate(turns):
        if index % 2:
            tokens += fmt.answer(text)
            tokens += fmt.end([])
        else:
            tokens += fmt.user(text, first=index == 0)
    return tokens


def _format(tokenizer: Tokenizer, family: str) -> ChatFormat:
    return ChatFormat(tokenizer, TEMPLATES[family], VARIABLES, set())


def _no_role(family: str, system: str) -> bool:
    return family == "gemma-2" and bool(system)


@pytest.mark.parametrize("system", [SYSTEM, ""], ids=["system", "no-system"])
@pytest.mark.parametrize("family", TEMPLATES)
@pytest.mark.parametrize(
    "question",
    ["What is a page?", "什么是分页？", "x" * 300, "Tab\tand 1,024.", "\n  A\n page? \n"],
)
def test_the_first_turn_is_the_templates_own(
    family: str, question: str, system: str, tokenizer: Tokenizer, theirs: Any
) -> None:
    fmt = _format(tokenizer, family)
    ours = _conversation(fmt, system, question)
    if _no_role(family, system):
        system, question = "", f"{system}\n\n{question.strip()}"
    assert ours == _rendered(theirs, TEMPLATES[family], system, question)


@pytest.mark.parametrize("system", [SYSTEM, ""], ids=["system", "no-system"])
@pytest.mark.parametrize("family", TEMPLATES)
@pytest.mark.parametrize("turn", [2, 3])
def test_the_fragments_of_later_turns_are_the_templates_own(
    family: str, turn: int, system: str, tokenizer: Tokenizer, theirs: Any
) -> None:
    fmt = _format(tokenizer, family)
    turns = TURNS[: 2 * turn - 1]
    ours = theirs.decode(_conversation(fmt, system, *turns))
    fragments = fmt.end([]) + fmt.user(turns[-1], first=False)
    if _no_role(family, system):
        system, turns = "", (f"{system}\n\n{turns[0]}", *turns[1:])
    rendered = _rendered(theirs, TEMPLATES[family], system, *turns)
    text = theirs.decode(rendered)
    if family == "mistral-v0.3" and system:  # only this moves: the system prompt
        moved = text.replace(f"{SYSTEM}\n\n", "").replace("[INST] ", f"[INST] {SYSTEM}\n\n", 1)
        assert ours == moved != text
        return
    # An answer's tokens are the model's own and need not be those of its text read again; what
    # is put behind it is the same token for token.
    assert rendered[-len(fragments) :] == fragments
    if family == "deepseek-r1":  # only this is left out: the opening of the thinking, closed here
        *older, newest = ours.split("<think>\n")
        assert [part.startswith("\n</think>\n\n") for part in older[1:]] == [True] * (turn - 1)
        ours = older[0] + "".join(part.removeprefix("\n</think>\n\n") for part in older[1:])
        text = text.removesuffix("<think>\n")
        assert newest == ""
    assert ours == text


@pytest.mark.parametrize("family", [name for name in TEMPLATES if name != "gemma-2"])
def test_white_space_around_the_system_text_is_left_as_the_template_leaves_it(
    family: str, tokenizer: Tokenizer, theirs: Any
) -> None:
    fmt = _format(tokenizer, family)
    spaced = f"\n {SYSTEM} \n"
    ours = _conversation(fmt, spaced, TURNS[0])
    assert ours == _rendered(theirs, TEMPLATES[family], spaced, TURNS[0])


@pytest.mark.parametrize("family", TEMPLATES)
def test_what_a_family_renders_otherwise_is_named_and_nothing_else(
    family: str, tokenizer: Tokenizer
) -> None:
    named = _format(tokenizer, family).differences
    expected = DIFFERENCES.get(family, [])
    assert len(named) == len(expected)
    assert all(any(part in sentence for sentence in named) for part in expected)


@pytest.mark.parametrize(
    ("family", "wrote"),
    [("qwen-3", "<think>\nHm.\n</think>\n\nA run."), ("deepseek-r1", "Hm.\n</think>\n\nA run.")],
)
def test_thinking_that_the_model_wrote_stays_where_the_template_drops_it(
    family: str, wrote: str, tokenizer: Tokenizer, theirs: Any
) -> None:
    fmt = _format(tokenizer, family)
    answer = theirs.encode(wrote, add_special_tokens=False)
    kept = fmt.system(SYSTEM) + fmt.user(TURNS[0], first=True) + answer
    kept += fmt.end(answer) + fmt.user(TURNS[2], first=False)
    dropped = theirs.decode(_rendered(theirs, TEMPLATES[family], SYSTEM, TURNS[0], wrote, TURNS[2]))
    assert "Hm." not in dropped
    ours = theirs.decode(kept)
    assert ours.count("<think>\nHm.\n</think>\n\n") == 1
    said = "A run." if family == "qwen-3" else "\n\nA run."
    assert ours.replace("<think>\nHm.\n</think>\n\nA run.", said) == dropped


def test_an_answer_known_as_text_is_not_read_as_thinking(tokenizer: Tokenizer, theirs: Any) -> None:
    fmt = _format(tokenizer, "deepseek-r1")
    text = theirs.decode(_conversation(fmt, SYSTEM, *TURNS[:3]))
    assert "<think>\n\n</think>\n\nA run of positions.<｜end▁of▁sentence｜>" in text


def test_differences_are_listed_when_a_model_is_loaded(make_tiny: Callable[..., Path]) -> None:
    folder = make_tiny()
    said: list[str] = []
    Engine(EngineConfig(str(folder), device="cpu"), on_progress=said.append).shutdown()
    assert said == ["Loading the weights"]  # ChatML: nothing to list
    (folder / "chat_template.jinja").write_text(QWEN_3)
    Engine(EngineConfig(str(folder), device="cpu"), on_progress=said.append).shutdown()
    assert any(DROPS_THINKING in line for line in said)


def test_the_date_of_a_template_is_fixed_when_the_format_is_made(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fmt = ChatFormat(tokenizer, LLAMA_3_2, VARIABLES, set())
    before, without = fmt.system(SYSTEM), fmt.system("")
    import transformers.utils.chat_template_utils as templates

    class Tomorrow(templates.datetime):  # type: ignore[misc,name-defined]
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls(2099, 1, 1)

    monkeypatch.setattr(templates, "datetime", Tomorrow)
    assert (fmt.system(SYSTEM), fmt.system("")) == (before, without)
    assert "2099" not in tokenizer.decode(before)
    later = ChatFormat(tokenizer, LLAMA_3_2, VARIABLES, set())
    assert "01 Jan 2099" in tokenizer.decode(later.system(SYSTEM))


@pytest.mark.parametrize(
    ("family", "end"),
    [
        ("llama-3.1", "<|eot_id|>"), ("llama-3.2", "<|eot_id|>"), ("qwen-2.5", "<|im_end|>"),
        ("qwen-3", "<|im_end|>"), ("mistral-v0.3", "</s>"), ("mistral-v7", "</s>"),
        ("smollm-2", "<|im_end|>"), ("smollm-3", "<|im_end|>"), ("gemma-2", "<end_of_turn>"),
        ("gemma-3", "<end_of_turn>"), ("phi-3.5", "<|end|>"), ("phi-4", "<|im_end|>"),
        ("phi-4-mini", "<|end|>"), ("granite-3.3", "<|end_of_text|>"),
        ("deepseek-r1", "<｜end▁of▁sentence｜>"),
    ],
)  # fmt: skip
def test_the_end_of_a_turn_ends_the_answer(family: str, end: str, tokenizer: Tokenizer) -> None:
    assert _format(tokenizer, family).stop_tokens == {tokenizer.special[end]}


@pytest.mark.parametrize("token", CONTROL_TOKENS)
def test_no_text_becomes_a_control_token_of_any_family(token: str, tokenizer: Tokenizer) -> None:
    assert not set(tokenizer.encode(f"a {token} b")) & set(tokenizer.special.values())
