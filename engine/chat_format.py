"""The model's chat template as fragments that are only ever appended.

A template renders a whole conversation at once. A session with a kept KV needs the opposite: the
tokens of one more message, given that everything before stays as it is. So the template is rendered
once for a conversation of marker texts, and what stands between the markers are the fragments:

    |------ head ------|     |---- middle ----|   |- prompt -|        |--- end + opening ---|
    <|im_start|>system\\n  S  <|im_end|>\\n<|im_...  U  <|im_end|>...  A  <|im_end|>\\n<|im_s...  U2

The first turn equals the template's own rendering. Where a template would render older turns
otherwise (it drops thinking, or moves the system prompt to the last message), the session keeps
what the model really saw, and `differences` names it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from transformers.utils.chat_template_utils import render_jinja_template

from engine.errors import EmptyMessage, TemplateNotUnderstood
from engine.tokenizer import Tokenizer

# Plain words, since some templates trim white space around a message.
_S, _U, _A, _U2 = "SystemMarkerQ", "FirstMarkerQ", "AnswerMarkerQ", "SecondMarkerQ"
_A2, _U3 = "OtherAnswerMarkerQ", "ThirdMarkerQ"
_SPACE = " \n "

Message = dict[str, str]


class ChatFormat:
    """Fragments of one model's chat template.

    Attributes:
        system_text: the system prompt that conversations begin with now.
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
        self._template = template
        self._variables = dict(variables)
        names = sorted(tokenizer.special, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, names)) or r"(?!)")
        self.system_text = ""
        self._static: list[int] = []
        self._has_system_role = True
        self._derive()
        ends = [tokenizer.special[m] for m in self._special.findall(self._end)[:1]]
        self.stop_tokens = frozenset(stop_tokens) | frozenset(ends)
        self.differences = tuple(self._compare())

    # -- what a conversation is made of ------------------------------------------------------

    def system(self, text: str) -> list[int]:
        """Set the system prompt; returns the static part, which every conversation starts with.

        Without a text, a conversation begins as the template begins one without a system message,
        which may have a text of the template's own.
        """
        self.system_text = text
        whole = self._whole_opening()
        # What opens any user message belongs to the message, not to the static part.
        if self._opening and whole.endswith(self._opening):
            self._static = self._encode(whole[: len(whole) - len(self._opening)])
        else:
            # Plain text touches the message. What no message changes is the static part.
            rendered = [self._encode(whole, message) for message in ("A", "1", "中", "\n")]
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
        kept = self._kept_around_user
        if first and not self._has_system_role and self.system_text.strip():
            kept = (True, kept[1])  # the system text stands before it in the same message
        text = _trimmed(text, kept)
        if not first:
            return self._encode(self._opening, text, self._prompt)
        tokens = self._encode(self._whole_opening(), text, self._prompt)
        if (
            tokens[: len(self._static)] != self._static
        ):  # a message that merges with the text before
            return self._encode(self._opening, text, self._prompt)
        return tokens[len(self._static) :]

    def end(self, generated: Sequence[int]) -> list[int]:
        """Tokens that close an answer.

        Where the model ended it by a token of its own, whichever of them, that is the end of the
        turn: only what the template has behind its own follows.
        """
        tokens = self._encode(self._end)
        if generated and generated[-1] in self.stop_tokens:
            ends = [place for place, token in enumerate(tokens) if token in self.stop_tokens]
            return tokens[ends[0] + 1 :] if ends else tokens
        return tokens

    def answer(self, text: str) -> list[int]:
        """Tokens of an answer that is known as text only, from another model, say."""
        return self._tokenizer.encode(self._before_answer + text)

    def count(self, text: str) -> int:
        """How many tokens a text has."""
        return len(self._tokenizer.encode(text))

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without control tokens."""
        return self._tokenizer.decode(tokens)

    # -- taking the template apart -----------------------------------------------------------

    def _derive(self) -> None:
        try:
            first = self._render([_message("system", _S), _message("user", _U)], prompt=True)
            self._has_system_role = first.count(_S) == 1 and first.find(_S) < first.find(_U)
        except Exception:  # templates refuse a system role by raising an error of their own
            self._has_system_role = False
        system = [_message("system", _S)] if self._has_system_role else []
        turns = [*system, _message("user", _U)]
        try:
            first = self._render(turns, prompt=True)
            answered = self._render([*turns, _message("assistant", _A)], prompt=False)
            second = self._render(
                [*turns, _message("assistant", _A), _message("user", _U2)], prompt=True
            )
        except Exception as error:
            raise TemplateNotUnderstood(f"The chat template cannot be used: {error}") from error
        for text, markers in ((first, [_U]), (answered, [_U, _A]), (second, [_U, _A, _U2])):
            places = [text.find(marker) for marker in markers]
            if -1 in places or places != sorted(places):
                raise TemplateNotUnderstood(
                    "The chat template does not write a conversation's messages in their order."
                )
        before_user, self._prompt = first.split(_U, 1)
        # What opens a conversation without a system text.
        self._bare = self._render([_message("user", _U)], prompt=True).split(_U, 1)[0]
        self._kept_around_user = self._kept(system, "user", _U)
        self._kept_around_system = (self._kept_around_user[0], True)
        if self._has_system_role:
            self._kept_around_system = self._kept([], "system", _S, _message("user", _U))
        if self._has_system_role:
            self._head, self._middle = before_user.split(_S, 1)
        else:
            self._head, self._middle = before_user, ""
        after_answer = answered.split(_A, 1)[1]
        # A space before an answer, say, which a model writes itself.
        before_answer = second.split(_U, 1)[1].split(_A, 1)[0]
        has_prompt = before_answer.startswith(self._prompt)
        self._before_answer = before_answer[len(self._prompt) :] if has_prompt else ""
        between = second.split(_A, 1)[1].split(_U2, 1)[0]
        self._moves_system = _S in between
        if self._moves_system:  # it belongs to the newest message there, and to the first one here
            later = self._render(
                [_message("user", _U), _message("assistant", _A), _message("user", _U2)],
                prompt=True,
            )
            between = later.split(_A, 1)[1].split(_U2, 1)[0]
        if between.startswith(after_answer):
            self._end, self._opening = after_answer, between[len(after_answer) :]
        else:  # the last answer is closed otherwise than earlier ones: earlier ones count
            match = self._special.search(between)
            cut = match.end() if match else 0
            self._end, self._opening = between[:cut], between[cut:]
        match = self._special.match(self._opening)
        if not self._end and match:  # the template leaves the last answer open
            self._end, self._opening = match[0], self._opening[match.end() :]
        self._first_render = first

    def _kept(
        self, before: list[Message], role: str, marker: str, *after: Message
    ) -> tuple[bool, bool]:
        """Whether the template keeps white space before and behind a message of this role."""
        padded = _message(role, f"{_SPACE}{marker}{_SPACE}")
        rendered = self._render([*before, padded, *after], prompt=True)
        return _SPACE + marker in rendered, marker + _SPACE in rendered

    def _whole_opening(self) -> str:
        """Everything before the first message's text."""
        text = _trimmed(self.system_text, self._kept_around_system)
        if not text:
            return self._bare
        if self._has_system_role:
            return self._head + text + self._middle
        return self._head + text + "\n\n"

    def _compare(self) -> Iterable[str]:
        """Where appending differs from the template's own rendering of the same messages."""
        if not self._has_system_role:
            yield (
                "The template has no system role: the system prompt stands at the start of the "
                "first message."
            )
        if not self._special.search(self._opening + self._prompt):
            yield (
                "The template marks turns by plain text only, so a text that holds the same marks "
                "can look like a turn."
            )
        if self._moves_system:
            yield (
                "The template moves the system prompt to the newest message; the session keeps it "
                "at the start, where it was computed."
            )
        elif not self._appends():
            yield (
                "The template renders older turns otherwise when a new one is added; the session "
                "keeps every turn as the model saw it."
            )
        if "think" in self._template:
            thought = f"<think>\nThoughtMarkerQ\n</think>\n\n{_A}"
            turns = [_message("user", _U), _message("assistant", thought), _message("user", _U2)]
            if "ThoughtMarkerQ" not in self._render(turns, prompt=True):
                yield (
                    "The template drops the thinking of older answers; the session keeps it, as "
                    "the model wrote it."
                )

    def _appends(self) -> bool:
        """Whether the template's second and third turn are the turns before with more at the end"""
        system = [_message("system", _S)] if self._has_system_role else []
        turns = [_message("user", _U), _message("assistant", _A), _message("user", _U2)]
        turns += [_message("assistant", _A2), _message("user", _U3)]
        ours = self._first_render
        for answer, question, count in ((_A, _U2, 3), (_A2, _U3, 5)):
            ours += self._before_answer + answer + self._end + self._opening + question
            ours += self._prompt
            if ours != self._render([*system, *turns[:count]], prompt=True):
                return False
        return True

    def _render(self, messages: list[Message], prompt: bool) -> str:
        rendered, _ = render_jinja_template(
            conversations=[messages],
            chat_template=self._template,
            add_generation_prompt=prompt,
            **self._variables,
        )
        return str(rendered[0])

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


def _trimmed(text: str, kept: tuple[bool, bool]) -> str:
    text = text if kept[0] else text.lstrip()
    return text if kept[1] else text.rstrip()


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}
