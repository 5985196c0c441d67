"""Text to token ids and back."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers

from engine.errors import WeightsUnusable

_INCOMPLETE = "\ufffd"
# UTF-8 takes four bytes at most, a token each in the worst case; what is longer will not be one.
_MOST_OF_A_CHARACTER = 8


class Tokenizer:
    """A model's tokenizer, which reads all text as plain text.

    A control token can only be put into a sequence by its id: no document and no user can write
    one. Added tokens in angle or square brackets count as control tokens even where the model's
    files do not mark them as special (Qwen's `<think>`, say).
    """

    def __init__(self, folder: Path) -> None:
        """Read `tokenizer.json` in a model folder.

        Raises:
            WeightsUnusable: the file is missing or cannot be read.
        """
        path = folder / "tokenizer.json"
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            for token in data.get("added_tokens", []):
                text = token["content"]
                if (text[0], text[-1]) in {("<", ">"), ("[", "]")}:
                    token["special"] = True
            _join_segments(data)
            self._tokenizer = tokenizers.Tokenizer.from_str(json.dumps(data))
        except Exception as error:
            raise WeightsUnusable(f"{path} is not a usable tokenizer: {error}") from error
        # From here on the text of a special token is encoded like any other text.
        self._tokenizer.encode_special_tokens = True
        self.special: dict[str, int] = {
            token.content: token_id
            for token_id, token in self._tokenizer.get_added_tokens_decoder().items()
            if token.special
        }

    def encode(self, text: str) -> list[int]:
        """Tokens of `text`, read as plain text; nothing is added before or after."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of `tokens` without control tokens."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def stream(self) -> "TextStream":
        return TextStream(self._tokenizer)


def _join_segments(data: dict[str, Any]) -> None:
    """Let a text between control tokens be read as one in the middle of a sequence.

    SentencePiece-like tokenizers put a space before the first piece of a sequence ("first"). Here
    every text follows a control token, so none is the first.
    """
    pre = data.get("pre_tokenizer") or {}
    for step in pre.get("pretokenizers", [pre]):
        if step.get("type") == "Metaspace" and step.get("prepend_scheme") == "first":
            step["prepend_scheme"] = "never"


class TextStream:
    """Decodes an answer token by token, and lets only whole characters out.

    Kept are the tokens that the last piece came from, since a decoder reads a token otherwise at
    the beginning of a text, and those whose character is not complete yet.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._out: list[int] = []
        self._waiting: list[int] = []

    def push(self, token: int) -> str:
        """The text that this token completes; empty while a character is still incomplete."""
        self._waiting.append(token)
        whole, out = self._decode([*self._out, *self._waiting]), self._decode(self._out)
        if whole.endswith(_INCOMPLETE) and len(self._waiting) < _MOST_OF_A_CHARACTER:
            return ""
        if not whole.startswith(out):
            # Bytes that are no character can make a decoder read those before them otherwise.
            anchor = self._tokenizer.encode("a", add_special_tokens=False).ids
            whole, out = self._decode([*anchor, *self._waiting]), self._decode(anchor)
        piece = whole[len(out) :]
        # A control token has no text: what follows it is read behind what came before.
        self._out = self._waiting if piece else [*self._out, *self._waiting]
        self._waiting = []
        return piece

    def _decode(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))
