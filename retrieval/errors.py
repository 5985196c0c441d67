"""What can go wrong with documents. Every message is a sentence that says what to do."""


class RetrievalError(Exception):
    """Base of everything that `retrieval` raises on purpose."""


class DocumentNotFound(RetrievalError):
    def __init__(self, document_id: str) -> None:
        super().__init__(
            f"There is no document {document_id!r}. List the documents to see their ids."
        )
        self.document_id = document_id


class DocumentShared(RetrievalError):
    """A document of the shared library, which everyone reads and only the command line changes."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} belongs to the shared library. Whoever runs the server changes that, with "
            "`python app.py add --shared` and `remove --shared`."
        )


class Unreadable(RetrievalError):
    """A file that cannot be read or understood; `reason` is the sentence for the person."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NothingToIndex(Unreadable):
    """A sound file without any text."""


class MayPass(Unreadable):
    """A file that was not read for want of time or memory: another time it may be."""


class CopyNotKept(RetrievalError):
    """A document without a stored copy that could be read: a file that was refused as it came."""

    def __init__(self, name: str) -> None:
        super().__init__(f"No copy of {name} is there to be read. Add the file again instead.")


class ParserStopped(RetrievalError):
    """The library was closed while a file was being parsed; the file stays queued."""


class EmbedderUnavailable(RetrievalError):
    """The embedding model is missing or broken; documents stay queued until it is there."""


class RerankerUnavailable(RetrievalError):
    def __init__(self, model: str, cause: Exception) -> None:
        super().__init__(
            f"The reranker {model!r} cannot be loaded ({cause}). Fetch it with `python app.py "
            f"fetch {model}`, name another one with --reranker, or leave that out."
        )


class DataFolderNotWritable(RetrievalError):
    def __init__(self, path: object, cause: OSError) -> None:
        super().__init__(
            f"The data folder {path} cannot be written ({cause.strerror or cause}). "
            "Give this user write access to it, or choose another folder."
        )


class StorageFull(RetrievalError):
    def __init__(self, where: object) -> None:
        super().__init__(
            f"The disk that holds {where} is full. Free some space; "
            "indexing goes on by itself where it stopped."
        )
