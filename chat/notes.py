"""What a turn says of itself besides the answer: fixed sentences, stored in English.

The page shows them in its own language (`chat.ui.sentences`).
"""

from __future__ import annotations

NOT_FOUND = "The documents do not hold an answer to this question."
NOT_READY = "The documents are still being read. Ask again in a moment."
NOT_SUPPORTED = "No passage supports this answer."
REPEATS_ITSELF = "The model began to repeat itself, so the answer was ended there."
INTERRUPTED = "Pageturn ended while this answer was being written."
