"""The page's strings, ``key: (English, Simplified Chinese)``, a file for each part of the page."""

from chat.ui.words import (
    account,
    chat,
    cost,
    documents,
    frame,
    kv_size,
    memory,
    pages,
    setup,
    sources,
)

WORDS: dict[str, tuple[str, str]] = {
    **frame.WORDS,
    **chat.WORDS,
    **cost.WORDS,
    **sources.WORDS,
    **documents.WORDS,
    **memory.WORDS,
    **pages.WORDS,
    **kv_size.WORDS,
    **setup.WORDS,
    **account.WORDS,
}
