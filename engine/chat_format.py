"""A conversation's tokens, from fragments of the chat template that are only ever appended.

A template renders a whole conversation at once. A session with a kept KV needs the opposite: the
tokens of one more message, given that everything before stays as it is. `ChatTemplate` has what
stands between the texts; here the texts are put in, as plain text.

The first turn equals the template's own rendering. Where a template would render older turns
otherwise (it drops thinking, or moves the system prompt to the last message), the session keeps
what the model really saw, and `differences` names it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.chat_template import ChatTemplate
from engine.errors import EmptyMessage
from engine.tokenizer import Tokenizer


class ChatFormat:
    """Fragments of one model's chat template.

    Attributes:
        system_text: the system prompt that conversations begin with now; empty for none.
        stop_tokens: ids that end an answer.
        differences: sentences on where the template itself would render a conversation otherwise.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: str,
        variables: Mapping[str, Any],
        stop_tokens: Iterable[int],
    ) -> None:
        """Take a template apart.

        Args:
            tokenizer: the model's.
            template: Jinja source.
            variables: what the template may use besides the messages (`bos_token`, ...).
            stop_tokens: ids that the model's configuration names as ends of an answer.

        Raises:
            TemplateNotUnderstood: the turns cannot be told apart.
        """
        self._tokenizer = tokenizer
        names = sorted(tokenizer.special, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, names)) or r"(?!)")
        self._template = ChatTemplate(template, variables, self._special)
        self._fragments = self._template.without_system
        self.system_text = ""
        self._static: list[int] = []
        ends = [tokenizer.special[m] for m in self._special.findall(self._fragments.end)[:1]]
        self.stop_tokens = frozenset(stop_tokens) | frozenset(ends)
        self.differences = self._template.differences

    # -- what a conversation is made of ------------------------------------------------------

    def system(self, text: str) -> list[int]:
        """Set the system prompt; returns the static part, which every conversation starts with.

        Args:
            text: empty where there is to be none: the template may then have one of its own.
        """
        self.system_text = text
        template = self._template
        self._fragments = template.with_system if text.strip() else template.without_system
        start, opening = self._start(), self._fragments.opening
        # What opens any user message belongs to the message, not to the static part.
        if start.endswith(opening) and self._special.match(opening):
            self._static = self._encode(start[: len(start) - len(opening)])
        else:
            # Plain text touches the message. What no message changes is the static part.
            rendered = [self._encode(start, message) for message in ("A", "1", "中", "\n", "  A")]
            together = [len(set(tokens)) == 1 for tokens in zip(*rendered, strict=False)]
            self._static = rendered[0][: [*together, False].index(False)]
        return list(self._static)

    def user(self, text: str, first: bool) -> list[int]:
        """Tokens of a user message and the prompt for the answer.

        Args:
            text: read as plain text: the name of a control token in it stays text.
            first: directly after the static part.

        Raises:
            EmptyMessage: there is nothing but white space in it.
        """
        if not text.strip():
            raise EmptyMessage
        fragments = self._fragments
        text = fragments.trim_user(text)
        later = self._encode(fragments.opening, text, fragments.prompt)
        if not first:
            return later
        tokens = self._encode(self._start(), text, fragments.prompt)
        if tokens[: len(self._static)] != self._static:
            return later  # a message that merges with the text before
        return tokens[len(self._static) :]

    def end(self, generated: Sequence[int]) -> list[int]:
        """Tokens that close an answer.

        Where the model ended it by a token of its own, whichever of them, that is the end of the
        turn: only what the template has behind its own follows.
        """
        tokens = self._encode(self._fragments.end)
        if generated and generated[-1] in self.stop_tokens:
            ends = [place for place, token in enumerate(tokens) if token in self.stop_tokens]
            return tokens[ends[0] + 1 :] if ends else tokens
        return tokens

    def answer(self, text: str) -> list[int]:
        """Tokens of an answer that is known as text only, from another model, say."""
        fragments = self._fragments
        return self._encode(fragments.lead, fragments.trim_answer(text))

    def count(self, text: str) -> int:
        """How many tokens a text has."""
        return len(self._tokenizer.encode(text))

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without control tokens."""
        return self._tokenizer.decode(tokens)

    def _start(self) -> str:
        """What stands before the first message."""
        fragments = self._fragments
        return fragments.head + fragments.trim_system(self.system_text) + fragments.middle

    def _encode(self, opening: str, text: str = "", closing: str = "") -> list[int]:
        """Encode template text around a plain text; only template text has control tokens.

        The plain text is encoded together with the template text that touches it, as the
        template's own rendering would be.
        """
        pieces: list[tuple[str, bool]] = [*self._pieces(opening), (text, False)]
        pieces += self._pieces(closing)
        tokens: list[int] = []
        plain = ""
        for piece, special in pieces:
            if not special:
                plain += piece
                continue
            tokens += self._tokenizer.encode(plain) if plain else []
            tokens.append(self._tokenizer.special[piece])
            plain = ""
        return tokens + (self._tokenizer.encode(plain) if plain else [])

    def _pieces(self, text: str) -> list[tuple[str, bool]]:
        pieces: list[tuple[str, bool]] = []
        at = 0
        for match in self._special.finditer(text):
            pieces += [(text[at : match.start()], False), (match[0], True)]
            at = match.end()
        return [*pieces, (text[at:], False)]
