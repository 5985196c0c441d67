"""The chat templates of the supported families: their rules, written down for this test."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import Engine, EngineConfig
from engine.chat_format import ChatFormat
from engine.tokenizer import Tokenizer

SYSTEM = "Answer briefly."

# A date and the system prompt in one message, headers around roles, messages trimmed.
LLAMA3 = (
    "{{ bos_token }}{% if not date_string is defined %}"
    "{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    "<|start_header_id|>system<|end_header_id|>\n\nToday Date: {{ date_string }}\n\n"
    "{% if messages[0].role == 'system' %}{{ messages[0].content | trim }}"
    "{% set messages = messages[1:] %}{% endif %}<|eot_id|>"
    "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
# The system prompt opens the first instruction; roles must alternate.
MISTRAL = (
    "{{ bos_token }}{% set ns = namespace(system='') %}"
    "{% if messages[0].role == 'system' %}{% set ns.system = messages[0].content + '\n\n' %}"
    "{% set messages = messages[1:] %}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if m.role == 'user' %}[INST]{% if loop.first %}{{ ns.system }}{% endif %}"
    "{{ m.content }}[/INST]{% else %}{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
# Adds a system prompt of its own when there is none.
QWEN2 = (
    "{% for m in messages %}{% if loop.first and m.role != 'system' %}<|im_start|>system\n"
    "You are a helpful assistant.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Thinking is dropped from every answer before the last question, and put before the last answer.
QWEN3 = (
    "{% set ns = namespace(last=0) %}{% for m in messages %}"
    "{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}{% set said = m.content.split('</think>')[-1] %}"
    "{% if loop.index0 > ns.last %}<think>\n\n</think>\n\n{% endif %}{{ said.lstrip('\n') }}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEMPLATES = {"llama3": LLAMA3, "mistral": MISTRAL, "qwen2": QWEN2, "qwen3": QWEN3}
CONTROL = (
    "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "[INST]", "[/INST]", "<s>", "</s>",
    "<think>", "</think>",
)  # fmt: skip
VARIABLES = {"bos_token": "<s>", "eos_token": "</s>"}


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


def _rendered(theirs: Any, template: str, *turns: str) -> list[int]:
    roles = ["user", "assistant"] * len(turns)
    messages = [{"role": r, "content": t} for r, t in zip(roles, turns, strict=False)]
    return list(
        theirs.apply_chat_template(
            [{"role": "system", "content": SYSTEM}, *messages], chat_template=template,
            add_generation_prompt=True, tokenize=True, return_dict=False,
        )
    )  # fmt: skip


def _conversation(fmt: ChatFormat, tokenizer: Tokenizer, *turns: str) -> list[int]:
    tokens = fmt.system(SYSTEM)
    for index, text in enumerate(turns):
        if index % 2:
            answer = tokenizer.encode(text)
            tokens += answer + fmt.end(answer)
        else:
            tokens += fmt.user(text, first=index == 0)
    return tokens


@pytest.mark.parametrize("family", TEMPLATES)
@pytest.mark.parametrize(
    "question", ["What is a page?", "什么是分页？", "x" * 300, "Tab\tand 1,024."]
)
def test_the_first_turn_is_the_templates_own(
    family: str, question: str, tokenizer: Tokenizer, theirs: Any
) -> None:
    template = TEMPLATES[family]
    fmt = ChatFormat(tokenizer, template, VARIABLES, set())
    assert _conversation(fmt, tokenizer, question) == _rendered(theirs, template, question)


@pytest.mark.parametrize("family", ["llama3", "mistral", "qwen2", "qwen3"])
def test_later_turns_are_the_templates_own_where_it_leaves_older_ones_alone(
    family: str, tokenizer: Tokenizer, theirs: Any
) -> None:
    template = TEMPLATES[family]
    fmt = ChatFormat(tokenizer, template, VARIABLES, set())
    turns = ("What is a page?", "A run of positions.", "And a table?", "It lists pages.", "Why?")
    ours, rendered = _conversation(fmt, tokenizer, *turns), _rendered(theirs, template, *turns)
    # As text: an answer's tokens are the model's own and need not be those of its text read again.
    assert theirs.decode(ours) == theirs.decode(rendered)


def test_thinking_stays_in_the_session_and_the_difference_is_listed(tokenizer: Tokenizer) -> None:
    fmt = ChatFormat(tokenizer, QWEN3, VARIABLES, set())
    thought = "<think>\nHm.\n</think>\n\nA run."
    kept = _conversation(fmt, tokenizer, "What is a page?", thought, "Why?")
    assert "Hm." in tokenizer.decode(kept)
    assert any("thinking" in difference for difference in fmt.differences)


def test_differences_are_listed_when_a_model_is_loaded(make_tiny: Callable[..., Path]) -> None:
    folder = make_tiny()
    said: list[str] = []
    Engine(EngineConfig(str(folder), device="cpu"), on_progress=said.append).shutdown()
    assert said == ["Loading the weights"]  # ChatML: nothing to list
    (folder / "chat_template.jinja").write_text(QWEN3)
    Engine(EngineConfig(str(folder), device="cpu"), on_progress=said.append).shutdown()
    assert any("drops the thinking" in line for line in said)


def test_the_date_of_a_template_is_fixed_when_the_format_is_made(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fmt = ChatFormat(tokenizer, LLAMA3, VARIABLES, set())
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
    ends = {"llama3": "<|eot_id|>", "mistral": "</s>", "qwen2": "<|im_end|>", "qwen3": "<|im_end|>"}
    for family, end in ends.items():
        fmt = ChatFormat(tokenizer, TEMPLATES[family], VARIABLES, set())
        assert tokenizer.special[end] in fmt.stop_tokens


@pytest.mark.parametrize("token", CONTROL)
def test_no_text_becomes_a_control_token_of_any_family(token: str, tokenizer: Tokenizer) -> None:
    assert not set(tokenizer.encode(f"a {token} b")) & set(tokenizer.special.values())
