"""How one question is to be answered."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, get_args

from chat.errors import BadOption
from chat.views import AnswerMode, RewriteMode
from engine.errors import SettingError
from engine.sampling import Sampling

_SAMPLING = {field.name for field in fields(Sampling)}
# A small model that has answered likes to go on with the layout of its prompt.
STOP = ("\nQuestion:", "\nPassage ")


@dataclass(frozen=True)
class AskOptions:
    """What a person may set for a turn; the defaults suit the small default model.

    ``passages`` is how many passages search may bring, ``read`` how many of them the model reads:
    a small one answers better, and sooner, from two than from four. ``answer`` says what is shown:
    the documents' own sentences (evidence), the model's text (generate) or both (auto); ``whole``
    that a question about a whole document ("summarise", "list all") has the model read all of it
    where it fits the context; ``rewrite`` whether the model makes a follow-up stand alone
    before it is searched (auto: a model of a billion parameters and more does). ``documents`` are
    the ids of the documents to search (None: all of the owner's). The others are the engine's
    sampling settings, and the engine says which of their values make sense.
    Raises BadOption for a value that makes none.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    max_tokens: int = 256
    passages: int = 4
    read: int = 2
    answer: AnswerMode = "auto"
    whole: bool = False
    rewrite: RewriteMode = "auto"
    documents: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        try:
            self.sampling(self.max_tokens)
        except SettingError as refused:
            raise BadOption(str(refused)) from None
        for name, holds, wanted in (
            ("max_tokens", self.max_tokens >= 1, "1 or more"),
            ("passages", 1 <= self.passages <= 50, "from 1 to 50"),
            ("read", 1 <= self.read <= 50, "from 1 to 50"),
            ("answer", self.answer in get_args(AnswerMode), " or ".join(get_args(AnswerMode))),
            ("rewrite", self.rewrite in get_args(RewriteMode), " or ".join(get_args(RewriteMode))),
        ):
            if not holds:
                raise BadOption(f"{name} is {getattr(self, name)}, but must be {wanted}.")

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> AskOptions:
        """From what ``to_json`` gave, in this version or another.

        Unknown fields are left out; where one of the engine's has a value that is refused now, all
        of the engine's are the defaults again.
        """
        known = {field.name for field in fields(cls)}
        values = {name: value for name, value in stored.items() if name in known}
        if values.get("documents") is not None:
            values["documents"] = tuple(values["documents"])
        try:
            return cls(**values)
        except BadOption:
            return cls(**{name: value for name, value in values.items() if name not in _SAMPLING})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def sampling(self, max_tokens: int) -> Sampling:
        """The engine's part of these, with the answer length that there is room for."""
        return Sampling(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            seed=self.seed,
            max_tokens=min(self.max_tokens, max_tokens),
            stop=STOP,
        )
