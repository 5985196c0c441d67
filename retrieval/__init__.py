"""Documents in, passages out. Knows nothing of the engine or of conversations.

Kept empty on purpose: the parser child imports this package and has to start in a moment.
Import what you need from its home, e.g. `from retrieval.library import Library`.
"""
