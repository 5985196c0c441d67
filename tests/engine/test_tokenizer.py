"""Answers are decoded token by token, whatever bytes a model writes."""

import random
from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, models

from engine.tokenizer import TextStream, Tokenizer

TEXT = "Été à Århus: 5 €, 缓存 and 👩‍🚀 twice.\n"


@pytest.fixture(scope="module")
def bytewise() -> tokenizers.Tokenizer:
    """One like Llama 2's: words with a mark for the space, and a token for each byte."""
    words = ["▁a", "▁bee", "cee", "▁", "é", "."]
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)}
    vocabulary |= {word: 256 + n for n, word in enumerate(words)} | {"<end>": 300}
    tokenizer = tokenizers.Tokenizer(
        models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, unk_token="<end>")
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(["<end>"])
    return tokenizer


def streamed(tokenizer: tokenizers.Tokenizer, tokens: list[int]) -> str:
    stream = TextStream(tokenizer)
    return "".join(map(stream.push, tokens))


def ids(tokenizer: tokenizers.Tokenizer, *names: str) -> list[int]:
    found = [tokenizer.token_to_id(name) for name in names]
    assert None not in found
    return found


def test_pieces_are_the_text_of_all_tokens(
    tokenizer_files: Path, bytewise: tokenizers.Tokenizer
) -> None:
    real = Tokenizer(tokenizer_files)
    stream = real.stream()
    tokens = real.encode(TEXT * 3)
    assert "".join(map(stream.push, tokens)) == TEXT * 3
    raw = [*ids(bytewise, "▁a", "▁bee"), *TEXT.encode(), *ids(bytewise, "▁a", "cee", ".")]
    assert streamed(bytewise, raw) == bytewise.decode(raw) == f"a bee{TEXT} acee."


def test_what_surrounds_bytes_that_are_no_character_is_not_lost(
    bytewise: tokenizers.Tokenizer,
) -> None:
    """The é is out when a byte comes that makes the decoder read those of the é otherwise."""
    raw = [*ids(bytewise, "▁a"), 0xC3, 0xA9, 0xFF, *ids(bytewise, "▁bee", "cee")]
    assert streamed(bytewise, raw) == "aé\ufffd beecee"


def test_a_control_token_costs_no_space(bytewise: tokenizers.Tokenizer) -> None:
    raw = ids(bytewise, "▁a", "<end>", "<end>", "▁bee", "<end>", "cee")
    assert streamed(bytewise, raw) == "a beecee"


@pytest.mark.parametrize("seed", range(20))
def test_no_tokens_are_too_strange_to_be_decoded(
    bytewise: tokenizers.Tokenizer, tokenizer_files: Path, seed: int
) -> None:
    draw = random.Random(seed)
    words = ids(bytewise, "▁a", "▁bee", "cee", "é", ".")
    raw = [draw.choice([draw.choice(words), draw.randrange(256)]) for _ in range(200)]
    text = streamed(bytewise, [*raw, words[0]])
    for word in ("bee", "cee"):
        assert text.count(word) == bytewise.decode(raw).count(word)
    real = Tokenizer(tokenizer_files)
    stream = real.stream()
    anything = [draw.randrange(20, 49_000) for _ in range(300)]
    found = "".join(map(stream.push, anything)).replace("\ufffd", "")
    told = real.decode(anything).replace("\ufffd", "")
    assert told.startswith(found)
    assert len(told) - len(found) <= 1  # a character may be incomplete at the end
