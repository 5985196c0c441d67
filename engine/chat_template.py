"""A Jinja chat template, taken apart into the fragments that stand between a conversation's texts.

A conversation of marker words is rendered, and what stands between the markers are the fragments:

    |------ head ------|     |---- middle ----|   |- prompt -|        |--- end + opening ---|
    <|im_start|>system\\n  S  <|im_end|>\\n<|im_...  U  <|im_end|>...  A  <|im_end|>\\n<|im_s...  U2
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from transformers.utils.chat_template_utils import render_jinja_template

from engine.errors import TemplateNotUnderstood

Trim = Callable[[str], str]

# Plain words, since some templates trim white space around a message. A template whose fragments
# change with the words has a part of a message's text in them.
_S, _U, _A, _U2, _A2, _U3 = range(6)
_MARKS = tuple(f"{name}MarkerQ" for name in ("System", "First", "Answer", "Second", "Told", "Last"))
_OTHER_MARKS = tuple(f"x{mark[::-1]}" for mark in _MARKS)
_PAD = "\n {} \n"
_THOUGHT = "ThoughtMarkerQ"
_THINK, _THINK_END = "<think>", "</think>"

_ANY_MARK = "|".join(_MARKS)
_SWITCH = " /no_think"

_NO_SYSTEM_ROLE = (
    "The template has no system role that can be used: the system prompt stands at the start of "
    "the first message."
)
_PLAIN_MARKS = (
    "The template marks turns by plain text only, so a text that holds the same marks can look "
    "like a turn."
)
_MOVES = (
    "The template moves the system prompt to the newest message; the session keeps it in the first."
)
_OPENS_THINKING = (
    "The template opens the thinking for a new answer and leaves that out of older ones; the "
    "session keeps it."
)
_OTHER_LEAD = (
    "The template begins an older answer otherwise than a new one; the session keeps the beginning "
    "that the model saw."
)
_DROPS_THINKING = (
    "The template drops the thinking of older answers; the session keeps it, as the model wrote it."
)
_REWRITES_THINKING = (
    "The template writes the thinking of older answers in a form of its own; the session keeps it, "
    "as the model wrote it."
)
_READS_SWITCHES = (
    "The template reads switches such as /no_think in a text; the session leaves them in it as "
    "plain text."
)
_COUNTS = (
    "The template numbers the turns, or changes in another way as they come; the session renders "
    "every later turn like the second."
)
_REWRITES = (
    "The template renders older turns otherwise when a new one is added; the session keeps every "
    "turn as the model saw it."
)
_ADVICE = (
    "take another version of the model, or put a plain template into a file chat_template.jinja "
    "in its folder."
)


@dataclass(frozen=True)
class Fragments:
    """What stands between the texts of a conversation.

    Attributes:
        head: before the system text, or before the first message where there is none.
        middle: between the system text and the first message.
        prompt: behind a user message, for the model to answer.
        lead: behind the prompt, before an answer that was not written by the model itself.
        end: closes an answer.
        opening: opens a later user message.
        trim_system, trim_user, trim_answer: what the template does to a text's white space.
    """

    head: str
    middle: str
    prompt: str
    lead: str
    end: str
    opening: str
    trim_system: Trim
    trim_user: Trim
    trim_answer: Trim


class ChatTemplate:
    """One model's chat template.

    Attributes:
        without_system: fragments of a conversation without a system text.
        with_system: fragments of one that begins with a system text.
        differences: sentences on where the template itself would render a conversation otherwise.
    """

    def __init__(
        self, source: str, variables: Mapping[str, Any], control_token: re.Pattern[str]
    ) -> None:
        """Take a template apart.

        Args:
            source: Jinja source.
            variables: what the template may use besides the messages (`bos_token`, ...).
            control_token: matches each of the model's control tokens.

        Raises:
            TemplateNotUnderstood: the turns cannot be told apart.
        """
        self._source = source
        self._variables = dict(variables)
        self._control_token = control_token
        self.without_system = self._fragments(_MARKS)
        if self.without_system != self._fragments(_OTHER_MARKS):
            raise TemplateNotUnderstood(
                f"The chat template writes a part of a message in a second place: {_ADVICE}"
            )
        in_role = self._system_fragments(_MARKS)
        if in_role != self._system_fragments(_OTHER_MARKS):
            in_role = None  # it writes the system prompt more than once
        self.with_system = in_role or replace(
            self.without_system, middle="\n\n", trim_system=self.without_system.trim_user
        )
        self.differences = tuple(dict.fromkeys(self._compare(in_role)))

    # -- taking it apart ---------------------------------------------------------------------

    def _fragments(self, marks: tuple[str, ...]) -> Fragments:
        _, user, answer, user2, _, _ = marks
        first = self._render(marks, _U)
        answered = self._render(marks, _A, prompt=False)
        second = self._render(marks, _U2)
        for text, expected in (
            (first, [user]),
            (answered, [user, answer]),
            (second, [user, answer, user2]),
        ):
            if re.findall("|".join(map(re.escape, marks)), text) != expected:
                raise TemplateNotUnderstood(
                    "The chat template does not write each message of a conversation once and in "
                    f"order: {_ADVICE}"
                )
        head, prompt = first.split(user)
        said, between = second.split(user)[1].split(answer)
        between = between.split(user2)[0]
        end, opening = self._end(answered.split(answer)[1], between)
        return Fragments(
            head=head,
            middle="",
            prompt=prompt,
            lead=_lead(prompt, said),
            end=end,
            opening=opening,
            trim_system=str,
            trim_user=self._trim(marks, _U, _U),
            trim_answer=self._trim(marks, _A, _U2),
        )

    def _system_fragments(self, marks: tuple[str, ...]) -> Fragments | None:
        """Fragments of a conversation with a system role; None where the template has none."""
        try:
            text = self._render(marks, _U, system=True)
        except TemplateNotUnderstood:  # templates refuse a system role by an error of their own
            return None
        system, user = marks[_S], marks[_U]
        if text.count(system) != 1 or text.count(user) != 1 or text.find(system) > text.find(user):
            return None
        head, rest = text.split(system)
        return replace(
            self.without_system,
            head=head,
            middle=rest.split(user)[0],
            trim_system=self._trim(marks, _S, _U, system=True),
        )

    def _end(self, after_answer: str, between: str) -> tuple[str, str]:
        """What closes an answer, and what opens the message after it."""
        if between.startswith(after_answer):
            end, opening = after_answer, between[len(after_answer) :]
        else:  # the last answer is closed otherwise than earlier ones: earlier ones count
            match = self._control_token.search(between)
            cut = match.end() if match else 0
            end, opening = between[:cut], between[cut:]
        match = self._control_token.match(opening)
        if not end and match:  # the template leaves the last answer open
            end, opening = match[0], opening[match.end() :]
        if not self._control_token.match(opening):  # plain text is read together with its like
            closed = [match.end() for match in self._control_token.finditer(end)]
            cut = closed[-1] if closed else 0
            end, opening = end[:cut], end[cut:] + opening
        return end, opening

    def _trim(self, marks: tuple[str, ...], mark: int, last: int, system: bool = False) -> Trim:
        """What the template does to the white space around a text."""
        padded = _PAD.format(marks[mark])
        plain = self._render(marks, last, system=system)
        changed = tuple(padded if at == mark else word for at, word in enumerate(marks))
        theirs = self._render(changed, last, system=system)
        for trim in (str.strip, str.lstrip, str.rstrip):
            if theirs == plain.replace(marks[mark], trim(padded)):
                return trim
        return str

    # -- where it would render otherwise -----------------------------------------------------

    def _compare(self, in_role: Fragments | None) -> Iterator[str]:
        """Where appending differs from the template's own rendering of the same messages."""
        if in_role is None:
            yield _NO_SYSTEM_ROLE
        else:
            yield from self._compare_turns(in_role, system=True)
        ours = self.without_system
        if not self._control_token.search(ours.opening + ours.prompt):
            yield _PLAIN_MARKS
        yield from self._compare_turns(ours, system=False)
        yield from self._compare_thinking(ours)
        for mark in (_U,) if in_role is None else (_S, _U):
            system = mark == _S
            switched = tuple(text + _SWITCH * (at == mark) for at, text in enumerate(_MARKS))
            plain = self._render(_MARKS, _U, system=system)
            wanted = plain.replace(_MARKS[mark], switched[mark])
            if self._render(switched, _U, system=system) != wanted:
                yield _READS_SWITCHES

    def _compare_thinking(self, ours: Fragments) -> Iterator[str]:
        """What becomes of thinking that the model wrote itself."""
        opened = "" if _opens_thinking(ours.prompt) else f"{_THINK}\n"
        thought = f"{opened}{_THOUGHT}\n{_THINK_END}\n\n{_MARKS[_A]}"
        text = self._render((*_MARKS[:_A], thought, *_MARKS[_U2:]), _U2)
        if _THOUGHT not in text:
            yield _DROPS_THINKING
        elif thought not in text or ours.lead.strip():
            yield _REWRITES_THINKING

    def _compare_turns(self, ours: Fragments, system: bool) -> Iterator[str]:
        """Where two or three turns differ, fragment by fragment."""
        start = [(ours.head, _REWRITES), (ours.middle, _REWRITES)][: 2 if system else 1]
        lead = _OPENS_THINKING if _opens_thinking(ours.prompt) else _OTHER_LEAD
        answer = (ours.prompt + ours.lead, lead)
        between, prompt = ours.end + ours.opening, (ours.prompt, _COUNTS)
        second = [*start, answer, (between, _REWRITES), prompt]
        third = [*second[:-1], answer, (between, _COUNTS), prompt]
        for last, wanted in ((_U2, second), (_U3, third)):
            text = self._render(_MARKS, last, system=system)
            marks = re.findall(_ANY_MARK, text)
            if marks != list(_MARKS[_S if system else _U : last + 1]):
                yield _MOVES if _MARKS[_S] in marks else _REWRITES
                return
            for theirs, (fragment, difference) in zip(
                re.split(_ANY_MARK, text), wanted, strict=True
            ):
                if theirs != fragment:
                    yield difference

    def _render(
        self, texts: tuple[str, ...], last: int, prompt: bool = True, system: bool = False
    ) -> str:
        """The template's rendering of these texts up to the one at `last`."""
        roles = ("system", "user", "assistant", "user", "assistant", "user")
        messages = [
            {"role": role, "content": text} for role, text in zip(roles, texts, strict=True)
        ]
        try:
            rendered, _ = render_jinja_template(
                conversations=[messages[0 if system else 1 : last + 1]],
                chat_template=self._source,
                add_generation_prompt=prompt,
                **self._variables,
            )
        except Exception as error:  # whatever a template's own code can raise
            raise TemplateNotUnderstood(
                f"The chat template cannot be used ({error}): {_ADVICE}"
            ) from error
        return str(rendered[0])


def _opens_thinking(prompt: str) -> bool:
    return prompt.rfind(_THINK) > prompt.rfind(_THINK_END)


def _lead(prompt: str, said: str) -> str:
    """What stands before an answer whose thinking is not known.

    Args:
        prompt: what the template ends with for the model to answer.
        said: what it has in the same place before an older answer.
    """
    if said.startswith(prompt):
        return said[len(prompt) :]
    if _opens_thinking(prompt):  # the answer must not be read as thinking
        return said[said.find(_THINK_END) :] if _THINK_END in said else f"\n{_THINK_END}\n\n"
    return ""
