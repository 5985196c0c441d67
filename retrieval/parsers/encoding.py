"""Bytes to text when nobody says in which encoding they are."""

import re
import unicodedata
from contextlib import suppress
from typing import NamedTuple

from charset_normalizer import CharsetMatch, from_bytes

from retrieval.errors import Unreadable
from retrieval.parsers.formats import looks_like

# What people's files are really in. On equal evidence the earlier one wins: the detector knows
# a hundred code pages, and a short text fits many of them equally well.
CANDIDATES = (
    "cp1252",
    "gb18030",
    "big5",
    "cp932",
    "euc_jp",
    "cp949",
    "cp1251",
    "cp1250",
    "cp1253",
    "cp1254",
    "cp1255",
    "cp1256",
    "cp1257",
    "cp866",
    "koi8_r",
)
_BOMS = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
_MAX_CONTROL_SHARE = 0.05
_MAX_DAMAGED_SHARE = 0.005
_CHAOS_TIE = 0.01
_MAX_STRANGE_SHARE = 0.02
_SAMPLE = 20_000
_WORD = re.compile(r"\S+")
_FOREIGN = re.compile("[\u0370-\u06ff]")
_LATIN = re.compile("[A-Za-z\u00c0-\u024f]")
_EVERYDAY = frozenset(" \n,.，。、")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ufffe\uffff]")


class Decoded(NamedTuple):
    text: str
    encoding: str
    notes: tuple[str, ...] = ()


def decode(data: bytes, declared: str | None = None) -> Decoded:
    """Text with "\\n" line ends and no byte order mark. Raises Unreadable for what is no text.

    `declared` is what the file says of itself (an HTML meta tag); it is believed if it fits.
    """
    kind = looks_like(data[:16])
    if kind is not None:
        raise Unreadable(
            f"The file is {kind}, not text. Give it the extension that fits and add it again."
        )
    decoded = _decode(data, declared)
    text = decoded.text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if text.count("\x00") or len(_CONTROL.findall(text)) > _MAX_CONTROL_SHARE * len(text):
        raise Unreadable(_BINARY)
    return decoded._replace(text=text)


_BINARY = "The file is binary data, not text. Add the document in a format that can be read."


def _decode(data: bytes, declared: str | None) -> Decoded:
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return _damaged(data[len(bom) :], encoding)
    for encoding in filter(None, ("utf-8", declared)):
        try:
            text = data.decode(encoding)
        except (UnicodeDecodeError, LookupError):
            continue
        if "\x00" not in text:
            return Decoded(text, encoding)
    if b"\x00" in data:
        return _without_mark(data)
    return _detect(data)


def _damaged(data: bytes, encoding: str) -> Decoded:
    """Decode what is surely of this encoding; broken bytes become U+FFFD, and a note."""
    text = data.decode(encoding, errors="replace")
    broken = text.count("\ufffd")
    if broken > max(1, _MAX_DAMAGED_SHARE * len(text)):
        raise Unreadable(
            f"The file is marked as {encoding.upper()} and is not. Save it again as UTF-8."
        )
    notes = (f"{broken} characters could not be decoded.",) if broken else ()
    return Decoded(text, encoding, notes)


def _without_mark(data: bytes) -> Decoded:
    """UTF-16 without a byte order mark, in the order that gives more everyday punctuation."""
    texts: dict[str, str] = {}
    for encoding in ("utf-16-le", "utf-16-be"):
        with suppress(UnicodeDecodeError):
            texts[encoding] = data.decode(encoding)
    if not texts:
        raise Unreadable(_BINARY)
    encoding = max(texts, key=lambda name: sum(c in _EVERYDAY for c in texts[name][:_SAMPLE]))
    sample = texts[encoding][:_SAMPLE]
    strange = sum(
        unicodedata.category(c) in ("Cc", "Cn", "Co", "Cs") and c not in "\t\n\r\f" for c in sample
    )
    if strange > _MAX_STRANGE_SHARE * len(sample):
        raise Unreadable(_BINARY)
    return Decoded(texts[encoding], encoding)


def _detect(data: bytes) -> Decoded:
    damaged = _almost_utf8(data)
    if damaged is not None:
        return damaged
    found = from_bytes(data, cp_isolation=list(CANDIDATES), enable_fallback=False)
    matches = [match for match in found if not _mixes_alphabets(str(match)[:_SAMPLE])]
    if matches:
        least = min(match.chaos for match in matches)
        best = max(
            (match for match in matches if match.chaos <= least + _CHAOS_TIE),
            key=lambda match: (match.coherence, -_preference(match)),
        )
        return Decoded(data.decode(best.encoding, errors="replace"), best.encoding)
    text = data.decode("cp1252", errors="replace")
    letters = sum(c.isalnum() or c.isspace() for c in text)
    if letters * 2 < len(text):
        raise Unreadable(_BINARY)
    note = "The encoding of the file is not certain; Windows-1252 was taken."
    return Decoded(text, "cp1252", (note,))


def _mixes_alphabets(text: str) -> bool:
    """Whether half the words with Greek, Cyrillic, Hebrew or Arabic letters have Latin ones too."""
    foreign = [word for word in _WORD.findall(text) if _FOREIGN.search(word)]
    mixed = sum(bool(_LATIN.search(word)) for word in foreign)
    return bool(foreign) and 2 * mixed >= len(foreign)


def _preference(match: CharsetMatch) -> int:
    """The place in CANDIDATES of a match, which stands for all that give the same text."""
    names = {match.encoding, *match.could_be_from_charset}
    return min(CANDIDATES.index(name) for name in names if name in CANDIDATES)


def _almost_utf8(data: bytes) -> Decoded | None:
    text = data.decode("utf-8", errors="replace")
    broken = text.count("\ufffd")
    beyond_ascii = sum(c > "\x7f" for c in text) - broken
    if broken > _MAX_DAMAGED_SHARE * len(text) or beyond_ascii < 10 * broken:
        return None
    return Decoded(text, "utf-8", (f"{broken} characters could not be decoded.",))
