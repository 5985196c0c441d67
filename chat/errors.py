"""What can go wrong in a conversation: each error is a sentence for the person."""

from __future__ import annotations


class ChatError(Exception):
    """The base of everything that chat raises on purpose."""


class SessionNotFound(ChatError):
    """There is no such conversation, or it belongs to another owner: the two look the same."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"There is no conversation {session_id!r}.")


class TurnNotFound(ChatError):
    """There is no such turn in this conversation."""

    def __init__(self, turn_id: str) -> None:
        self.turn_id = turn_id
        super().__init__(f"There is no turn {turn_id!r} in this conversation.")


class TurnRunning(ChatError):
    """The conversation is still answering; it takes one question at a time."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(
            "This conversation is still answering. Wait for the answer, or stop it first."
        )


class NotSaved(ChatError):
    """The end of a conversation's last turn is still only in memory; nothing can follow it."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(
            "The last answer of this conversation could not be saved yet, so nothing can follow "
            "it. Free some space on the disk, if it is full, and ask again."
        )


class LibraryEmpty(ChatError):
    """A question was asked before there was a document to answer it from."""

    def __init__(self) -> None:
        super().__init__(
            "There are no documents to answer from yet. Add some, for example the sample library: "
            "python app.py add data/library (or the button on the page)."
        )


class QuestionEmpty(ChatError):
    """The question holds nothing but white space."""

    def __init__(self) -> None:
        super().__init__("The question is empty. Type what you want to know.")


class QuestionTooLong(ChatError):
    """The question alone, with no passage and no history, does not fit the model's context."""

    def __init__(self, needed_tokens: int, limit_tokens: int) -> None:
        self.needed_tokens = needed_tokens
        self.limit_tokens = limit_tokens
        super().__init__(
            f"The question needs {needed_tokens:,} tokens, and there is room for "
            f"{limit_tokens:,}. Shorten it, or add the long text as a document."
        )


class BadOption(ChatError):
    """A setting of a question is outside of what makes sense."""


class DatabaseDamaged(ChatError):
    """The database says of itself what no version of the program writes."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"The database is damaged ({problem}); nothing was changed. Put a backup in its place "
            "with: python app.py restore FILE.zip --replace"
        )


class DatabaseTooNew(ChatError):
    """The database was written by a later version of the program."""

    def __init__(self, revision: str) -> None:
        super().__init__(
            f"The database has the layout {revision!r}, which this version does not know: "
            "it was written by a later one. Update Pageturn, or choose another --data-dir."
        )
