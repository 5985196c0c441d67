"""The chat templates of the supported families: their rules, written down for this test."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import Engine, EngineConfig
from engine.chat_format import ChatFormat
from engine.tokenizer import Tokenizer
from tests.engine.family_templates import CONTROL, LLAMA_3, QWEN_3, TEMPLATES, VARIABLES

SYSTEM = "Answer briefly."


@pytest.fixture(scope="module")
def folder(tokenizer_files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default tokenizer with the families' control tokens added."""
    folder = tmp_path_factory.mktemp("control-tokens")
    data = json.loads((tokenizer_files / "tokenizer.json").read_text())
    for index, token in enumerate(CONTROL):
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


TURNS = ("What is a page?", "A run of positions.", "And a table?", "It lists pages.", "Why?")
# Families whose templates render older turns otherwise, and what `differences` says of it.
REWRITES = {"Mistral v0.3": "moves the system prompt", "DeepSeek R1 distill": "thinking"}


def _rendered(theirs: Any, fmt: ChatFormat, template: str, system: str, *turns: str) -> list[int]:
    """The template's own tokens; without a system role, the text opens the first question."""
    roles = ["user", "assistant"] * len(turns)
    messages = [{"role": r, "content": t} for r, t in zip(roles, turns, strict=False)]
    if system and fmt._has_system_role:
        messages.insert(0, {"role": "system", "content": system})
    elif system:
        messages[0]["content"] = f"{system}\n\n{messages[0]['content']}"
    return list(
        theirs.apply_chat_template(
            messages, chat_template=template, add_generation_prompt=True, tokenize=True,
            return_dict=False,
        )
    )  # fmt: skip


def _conversation(fmt: ChatFormat, system: str, *turns: str) -> list[int]:
    tokens = fmt.system(system)
    for index, text in enumerate(turns):
        if index % 2:
            answer = fmt.answer(text)
            tokens += answer + fmt.end(answer)
        else:
            tokens += fmt.user(text, first=index == 0)
    return tokens


@pytest.mark.parametrize("family", TEMPLATES)
@pytest.mark.parametrize("system", ["Answer briefly.", "", " \nAnswer\nbriefly. \n"])
@pytest.mark.parametrize(
    "question", ["What is a page?", "什么是分页？", "x" * 300, "Tab\tand 1,024.", " \n Why? \n\n"]
)
def test_the_first_turn_is_the_templates_own(
    family: str, system: str, question: str, tokenizer: Tokenizer, theirs: Any
) -> None:
    fmt = ChatFormat(tokenizer, TEMPLATES[family], VARIABLES, set())
    ours = _conversation(fmt, system, question)
    assert ours == _rendered(theirs, fmt, TEMPLATES[family], system, question)


@pytest.mark.parametrize("turns", [3, 5], ids=["second", "third"])
@pytest.mark.parametrize("system", ["Answer briefly.", ""])
@pytest.mark.parametrize("family", TEMPLATES)
def test_later_turns_are_the_templates_own_where_it_leaves_older_ones_alone(
    family: str, system: str, turns: int, tokenizer: Tokenizer, theirs: Any
) -> None:
    fmt = ChatFormat(tokenizer, TEMPLATES[family], VARIABLES, set())
    ours = theirs.decode(_conversation(fmt, system, *TURNS[:turns]))
    # As text: an answer's tokens are the model's own and need not be those of its text read again.
    rendered = theirs.decode(_rendered(theirs, fmt, TEMPLATES[family], system, *TURNS[:turns]))
    if family in REWRITES and (system or family != "Mistral v0.3"):
        assert ours != rendered
        assert any(REWRITES[family] in difference for difference in fmt.differences)
    else:
        assert ours == rendered


@pytest.mark.parametrize("family", sorted(set(TEMPLATES) - set(REWRITES) - {"Gemma 2", "Qwen 3"}))
def test_nothing_is_said_of_a_template_that_only_appends(family: str, tokenizer: Tokenizer) -> None:
    assert ChatFormat(tokenizer, TEMPLATES[family], VARIABLES, set()).differences == ()


@pytest.mark.parametrize("family", TEMPLATES)
def test_no_marker_of_ours_is_in_what_a_model_reads(family: str, tokenizer: Tokenizer) -> None:
    fmt = ChatFormat(tokenizer, TEMPLATES[family], VARIABLES, set())
    for system in ("Answer briefly.", ""):
        assert "Marker" not in tokenizer.decode(_conversation(fmt, system, *TURNS))


def test_thinking_stays_in_the_session_and_the_difference_is_listed(tokenizer: Tokenizer) -> None:
    fmt = ChatFormat(tokenizer, QWEN_3, VARIABLES, set())
    thought = "<think>\nHm.\n</think>\n\nA run."
    kept = _conversation(fmt, SYSTEM, "What is a page?", thought, "Why?")
    assert "Hm." in tokenizer.decode(kept)
    assert any("thinking" in difference for difference in fmt.differences)


def test_differences_are_listed_when_a_model_is_loaded(make_tiny: Callable[..., Path]) -> None:
    folder = make_tiny()
    said: list[str] = []
    Engine(EngineConfig(str(folder), device="cpu"), on_progress=said.append).shutdown()
    loading = [line for line in said if "kernels" not in line]  # they may be built, once
    assert loading == ["Loading the weights"]  # ChatML: nothing to list
    (folder / "chat_template.jinja").write_text(QWEN_3)
    Engine(EngineConfig(str(folder), device="cpu"), on_progress=said.append).shutdown()
    assert any("drops the thinking" in line for line in said)


def test_the_date_of_a_template_is_fixed_when_the_format_is_made(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fmt = ChatFormat(tokenizer, LLAMA_3, VARIABLES, set())
    before = fmt.system(SYSTEM)
    import transformers.utils.chat_template_utils as templates

    class Tomorrow(templates.datetime):  # type: ignore[misc,name-defined]
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls(2099, 1, 1)

    monkeypatch.setattr(templates, "datetime", Tomorrow)
    assert fmt.system(SYSTEM) == before
    assert "2099" not in tokenizer.decode(before)


def test_the_end_of_a_turn_ends_the_answer(tokenizer: Tokenizer) -> None:
    ends = {
        "Llama 3": "<|eot_id|>", "Qwen 2.5": "<|im_end|>", "Qwen 3": "<|im_end|>",
        "Mistral v0.3": "</s>", "Mistral v7": "</s>", "SmolLM2": "<|im_end|>",
        "SmolLM3": "<|im_end|>", "Gemma 2": "<end_of_turn>", "Gemma 3": "<end_of_turn>",
        "Phi 3.5": "<|end|>", "Phi 4": "<|im_end|>", "Phi 4 mini": "<|end|>",
        "Granite 3": "<|end_of_text|>", "DeepSeek R1 distill": "<｜end▁of▁sentence｜>",
    }  # fmt: skip
    assert ends.keys() == TEMPLATES.keys()
    for family, end in ends.items():
        fmt = ChatFormat(tokenizer, TEMPLATES[family], VARIABLES, set())
        assert tokenizer.special[end] in fmt.stop_tokens


@pytest.mark.parametrize("token", CONTROL)
def test_no_text_becomes_a_control_token_of_any_family(token: str, tokenizer: Tokenizer) -> None:
    assert not set(tokenizer.encode(f"a {token} b")) & set(tokenizer.special.values())
