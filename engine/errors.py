"""Errors of the engine. Each message is a sentence for the person who reads it."""


class EngineError(Exception):
    """Anything that the engine refuses or that went wrong inside it."""


class SettingError(EngineError):
    """A setting that cannot be used, alone or together with another."""


class ModelNotFound(EngineError):
    def __init__(self, model: str) -> None:
        super().__init__(
            f"There is no model {model!r} here: give a folder, a .gguf file, or a Hub id that "
            f"`python app.py fetch {model}` has brought."
        )


class UnsupportedArchitecture(EngineError):
    def __init__(self, name: str, supported: tuple[str, ...]) -> None:
        self.name, self.supported = name, supported
        super().__init__(
            f"The model's architecture is {name!r}, which this engine does not run. "
            f"It runs: {', '.join(supported)}."
        )


class WeightsUnusable(EngineError):
    """Model files that are there but broken, incomplete or contradictory."""


class TemplateNotUnderstood(EngineError):
    """A chat template whose turns cannot be told apart, so no conversation can be built on it."""


class EmptyMessage(EngineError):
    def __init__(self) -> None:
        super().__init__("The message is empty: write a question first.")


class ContextTooLong(EngineError):
    """More tokens than can ever be held at once.

    Args:
        needed: tokens that the request needs, the first generated one included.
        limit: tokens that fit.
    """

    def __init__(self, needed: int, limit: int) -> None:
        self.needed, self.limit = needed, limit
        super().__init__(
            f"This needs {needed:,} tokens and only {limit:,} fit: shorten the text, "
            "start a new conversation, or give the engine more KV memory."
        )


class UnknownToken(EngineError):
    def __init__(self, token: int, vocabulary: int) -> None:
        super().__init__(
            f"Token {token} is not in the model's vocabulary of {vocabulary:,}: "
            "these tokens belong to another model."
        )


class QueueFull(EngineError):
    def __init__(self, waiting: int) -> None:
        super().__init__(
            f"{waiting} requests are waiting already: try again in a moment, "
            "or start with a larger --max-sessions."
        )


class SessionBusy(EngineError):
    def __init__(self) -> None:
        super().__init__("This conversation is still answering: wait for it, or stop it first.")


class SessionClosed(EngineError):
    def __init__(self) -> None:
        super().__init__("This session was closed: open it again from its tokens.")


class PoolTooSmall(EngineError):
    """A KV pool that does not fit the device, or that is too small to hold any conversation."""


class OutOfPages(EngineError):
    """No page is free now. The scheduler answers it by evicting or by waiting; users never see it.

    Args:
        wanted: pages asked for.
        free: pages free at that moment.
    """

    def __init__(self, wanted: int, free: int) -> None:
        self.wanted, self.free = wanted, free
        super().__init__(f"{wanted} KV pages were wanted and {free} are free.")


class StepFailed(EngineError):
    """The computation of one request failed; the cause is chained."""


class EngineStopped(EngineError):
    def __init__(self) -> None:
        super().__init__("The engine has been shut down.")


def as_engine_error(error: Exception) -> EngineError:
    """The error itself, or one of ours that says what went wrong."""
    if isinstance(error, EngineError):
        return error
    failed = StepFailed(
        f"The engine could not compute this answer ({type(error).__name__}: {error}). "
        "Other conversations are not affected; ask again."
    )
    failed.__cause__ = error
    return failed
