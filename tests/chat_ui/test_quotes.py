"""Quotations as people read them."""

from collections.abc import Callable

import pytest

from chat.ui.quotes import quotes
from chat.views import CitationView


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("**Page table.** It maps tokens to pages.", "Page table. It maps tokens to pages."),
        ("- **Page.** Sixteen *tokens*.", "Page. Sixteen tokens."),
        ("**页表。**把词元对应到页。", "页表。把词元对应到页。"),
        ("**A bold sentence that was cut", "A bold sentence that was cut"),
        ("f(*args, **more) is 2 * 3 * 4", "f(*args, **more) is 2 * 3 * 4"),
        ("2**3 is less than 4**5 and a*b*c", "2**3 is less than 4**5 and a*b*c"),
    ],
)
def test_marks_around_words_are_left_out(
    citation: Callable[..., CitationView], sentence: str, shown: str
) -> None:
    quote = citation(
        marker=None,
        text=sentence,
        char_start=0,
        char_end=len(sentence),
        support_start=0,
        support_end=len(sentence),
    )
    assert f'<q dir="auto">{shown}</q>' in quotes("t1", [quote], True)
