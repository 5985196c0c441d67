"""What a PDF's characters need to become text: letters as such, words whole, nothing invisible."""

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

# Where a word was cut at the end of a line, until `join_words` has seen the whole document.
CUT = "\ufffe"

# PDFium writes U+FFFE or U+0002 for a hyphen at the end of a line and leaves out the line's end.
MARKED = re.compile("[\ufffe\x02][ \r\n]*")
_HYPHEN_AT_END = re.compile(r"(?<=[^\W\d_])[-\u2010]\n(?=[^\W\d_])")
_SOFT_HYPHEN = re.compile("\u00ad[ ]*\n?")
_CUT_WORD = re.compile(rf"(?<![^\W_])([^\W_]+){CUT}([^\W_]+)([^\s{CUT}]*)[ \n]?")
_LINE_END = re.compile(r"(?:(?<![ \t\u00a0])[ \t\u00a0]+)?\r?\n|\r")
_INVISIBLE = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\u200b\u2060\ufeff\uffff]")
# Signs for the same letters as others, by what NFKC says: ligatures and Arabic's shapes; Han by
# way of radicals and compatibility; letters and digits of full width, kana of half of it. Not
# "²" or "½", where it would change what is said, nor the punctuation that Chinese is set with.
_SHAPES = re.compile(
    "[\u2e80-\u2fdf\uf900-\ufdff\ufe70-\ufefc\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff66-\uff9f]+"
)
_HAN = "\u2e80-\u2fdf\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_HAN_RUNS = re.compile(rf"(?<![{_HAN}])[{_HAN}]+(?: [{_HAN}]+)+")
_LONE_HAN = re.compile(
    rf"(?<![{_HAN}])[{_HAN}](?:[ ][{_HAN}](?![{_HAN}]))+|(?<=[{_HAN}])[ ](?=[{_HAN}](?![{_HAN}]))"
)
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")


def clean(raw: str) -> str:
    """A page's characters as text; words cut at the end of a line keep the mark CUT."""
    text = MARKED.sub(CUT, raw)
    text = _LINE_END.sub("\n", text)
    text = _SOFT_HYPHEN.sub("", text)
    text = _HYPHEN_AT_END.sub(CUT, text)
    text = _SHAPES.sub(lambda match: unicodedata.normalize("NFKC", match[0]).strip(), text)
    text = _INVISIBLE.sub("", text)
    return join_han(text).strip()


def join_han(text: str) -> str:
    """Chinese and Japanese without the spaces around characters that were set one by one."""

    def joined(match: re.Match[str]) -> str:
        first, *rest = match[0].split(" ")
        out = first
        for before, run in pairwise([first, *rest]):
            out += run if len(before) == 1 or len(run) == 1 else f" {run}"
        return out

    return _HAN_RUNS.sub(joined, text)


def join_words(pages: Sequence[str]) -> list[str]:
    """The pages with the words whole that were cut at the ends of lines.

    A hyphen stays where the document has the word with one elsewhere and never without, and before
    a capital or a digit, where no word is cut.
    """
    known = {word for page in pages for word in _WORD.findall(page.casefold())}

    def joined(match: re.Match[str]) -> str:
        first, second, rest = match.groups()
        whole, parted = (first + second).casefold(), f"{first}-{second}".casefold()
        goes_on = second[0].islower() or (first.isupper() and second.isupper())
        keeps = not goes_on or (parted in known and whole not in known)
        return f"{first}{'-' if keeps else ''}{second}{rest}\n"

    return [_CUT_WORD.sub(joined, page).replace(CUT, "-").strip() for page in pages]
