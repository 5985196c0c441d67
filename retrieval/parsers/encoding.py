"""Bytes to text when nobody says in which encoding they are, or says it wrongly."""

import codecs
import re
import unicodedata
from contextlib import suppress
from typing import NamedTuple

from retrieval.errors import Unreadable
from retrieval.parsers.formats import looks_like

# What people's files are really in, by the names that chardet knows.
CANDIDATES = (
    *("cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258"),
    *("gb18030", "big5hkscs", "cp932", "euc_jis_2004", "cp949", "cp874"),
    *("koi8-r", "koi8-u", "cp866", "cp437", "cp850", "cp852", "mac-roman"),
    *("iso8859-2", "iso8859-5", "iso8859-6", "iso8859-7", "iso8859-8", "iso8859-16"),
    "mac-cyrillic",
)
# An encoding by another's name holds all of its characters and more; programs mix them up.
_WIDER = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
    "cp950": "big5hkscs",
    "euc_jp": "euc_jis_2004",
    # A page that could be read up to this name is not in it.
    "utf-16": "utf-8",
    "utf-16-le": "utf-8",
    "utf-16-be": "utf-8",
}
# The plain forms first: the extended ones read some of the same bytes as rarer characters.
_PLAIN_FIRST = {
    "big5hkscs": ("big5", "cp950", "big5hkscs"),
    "euc_jis_2004": ("euc_jp", "euc_jis_2004"),
}
# Bytes that mean something else hardly ever make sense in these.
_SEVERAL_BYTES = frozenset(("gb18030", "big5hkscs", "cp932", "euc_jis_2004", "cp949"))
_BOMS = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
_ESCAPES = re.compile(rb"\x1b(?:\$[@B]|\([BJI]|\$\)C)")
_ASCII = bytes(range(128))
_MAX_CONTROL_SHARE = 0.05
_MAX_DAMAGED_SHARE = 0.005
_MAX_STRANGE_SHARE = 0.02
# Western European files are so much more common that a near miss counts for them.
_NEAR = 0.7
_WESTERN = re.compile(
    "[ÀÁÂÃÄÅÆÇÈÉÊËÍÎÏÑÓÔÕÖØÙÚÛÜßàáâãäåæçèéêëíîïñóôõöøùúûüœŒ€£§°±«»“”‘’„–—…©®·¿¡½²³\u00a0]*"
)
_SIGN_IN_WORD = re.compile(r"[a-zA-Z][^\w\s\x00-\x7f’·–—-][a-zA-Z]")
_FEW_BYTES = 20
_MAX_SIGNS = 3
_SAMPLE = 20_000
_SAMPLE_BYTES = 200_000
_BEFORE = 100
_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")
_WORD = re.compile(r"\S+")
_FOREIGN = re.compile("[\u0370-\u06ff]")
_LATIN = re.compile("[A-Za-z\u00c0-\u024f]")
_EVERYDAY = frozenset(" \n,.，。、")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f\ufffe\uffff]")
_BINARY = "The file is binary data, not text. Add the document in a format that can be read."


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
    decoded = _decode(data, _codec(declared))
    text = decoded.text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if "\x00" in text or len(_CONTROL.findall(text)) > _MAX_CONTROL_SHARE * len(text):
        raise Unreadable(_BINARY)
    return decoded._replace(text=text)


def _codec(name: str | None) -> str | None:
    """Python's name for an encoding that a file declares, None for one that nobody knows."""
    if name is None:
        return None
    try:
        known = codecs.lookup(name.lower().removeprefix("x-").removeprefix("x-")).name
    except LookupError:
        return None
    return _WIDER.get(known, known)


def _decode(data: bytes, declared: str | None) -> Decoded:
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return _marked(data[len(bom) :], encoding)
    if _ESCAPES.search(data[:_SAMPLE_BYTES]):
        for encoding in ("iso2022_jp_2", "iso2022_kr"):
            with suppress(UnicodeDecodeError):
                return Decoded(data.decode(encoding), encoding)
    with suppress(UnicodeDecodeError):
        text = data.decode("utf-8")
        if "\x00" not in text:
            return Decoded(text, "utf-8")
    if b"\x00" in data:
        return _without_mark(data)
    return _almost(data, "utf-8") or _detect(data, declared)


def _marked(data: bytes, encoding: str) -> Decoded:
    """Decode what is surely of this encoding; broken bytes become U+FFFD, and a note."""
    text = data.decode(encoding, errors="replace")
    broken = text.count("\ufffd")
    if broken > max(1, _MAX_DAMAGED_SHARE * len(text)):
        raise Unreadable(
            f"The file is marked as {encoding.upper()} and is not. Save it again as UTF-8."
        )
    return Decoded(text, encoding, _damage(broken))


def _damage(broken: int) -> tuple[str, ...]:
    return (f"{broken} characters could not be decoded.",) if broken else ()


def _without_mark(data: bytes) -> Decoded:
    """UTF-32 or UTF-16 without a byte order mark, in the order with more everyday punctuation."""
    for wide in ("utf-32-le", "utf-32-be"):
        with suppress(UnicodeDecodeError):
            return Decoded(data.decode(wide), wide)
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


def _almost(data: bytes, encoding: str) -> Decoded | None:
    """The text if all but a few of the bytes beyond ASCII are of this encoding."""
    text = data.decode(encoding, errors="replace")
    broken = text.count("\ufffd")
    beyond_ascii = len(data.translate(None, _ASCII)) / 2
    if broken > _MAX_DAMAGED_SHARE * len(text) or beyond_ascii < 10 * broken:
        return None
    return Decoded(text, encoding, _damage(broken))


def _detect(data: bytes, declared: str | None) -> Decoded:
    sample = _sample(data)
    likely = _likely(sample)
    if not likely:
        # Chinese without a space or a line end has no zero bytes in UTF-16 either.
        return _without_mark(data)
    names = _by_preference(likely, sample)
    if declared is not None and _is_credible(declared, likely, sample):
        names.insert(0, declared)
    for encoding in names:
        if (decoded := _any(data, encoding)) is not None:
            return decoded
    text = data.decode("cp1252", errors="replace")
    letters = sum(c.isalnum() or c.isspace() for c in text[:_SAMPLE])
    if letters * 2 < len(text[:_SAMPLE]):
        raise Unreadable(_BINARY)
    note = "The encoding of the file is not certain; Windows-1252 was taken."
    return Decoded(text, "cp1252", (note,))


def _is_credible(declared: str, likely: dict[str, float], sample: bytes) -> bool:
    """Whether to believe a file: many a page copies another's header, so clear evidence counts."""
    if declared in _SEVERAL_BYTES or len(sample.translate(None, _ASCII)) < _FEW_BYTES:
        return True
    known = {codecs.lookup(name).name for name in CANDIDATES}
    return declared not in known or likely.get(declared, 0.0) > _NEAR * max(likely.values())


def _any(data: bytes, encoding: str) -> Decoded | None:
    found = (_almost(data, name) for name in _PLAIN_FIRST.get(encoding, (encoding,)))
    return min(filter(None, found), key=lambda decoded: len(decoded.notes), default=None)


def _sample(data: bytes) -> bytes:
    """The lines that leave ASCII, from the first on: the others say nothing of the encoding."""
    first = _BEYOND_ASCII.search(data)
    at = first.start() if first else 0
    start = max(0, at - _BEFORE)
    line = data.rfind(b"\n", start, at) + 1
    lines = data[line or start :][:_SAMPLE_BYTES].split(b"\n")
    return b"\n".join(line for line in lines if _BEYOND_ASCII.search(line))


def _likely(sample: bytes) -> dict[str, float]:
    """How well each encoding fits, by the frequencies of letters in languages that use it.

    Empty if the bytes are no text in any of them.
    """
    import chardet  # its tables take a moment to load, and most files are in UTF-8

    found: dict[str, float] = {}
    for result in chardet.detect_all(
        sample, ignore_threshold=True, compat_names=False, include_encodings=CANDIDATES
    ):
        name = result["encoding"]
        if name is not None and not _is_mixed(sample.decode(name, errors="replace")[:_SAMPLE]):
            found[codecs.lookup(name).name] = result["confidence"]
    return found


def _is_mixed(text: str) -> bool:
    """Whether half the words with Greek, Cyrillic, Hebrew or Arabic letters have Latin ones too."""
    foreign = [word for word in _WORD.findall(text) if _FOREIGN.search(word)]
    mixed = sum(bool(_LATIN.search(word)) for word in foreign)
    return bool(foreign) and 2 * mixed >= len(foreign)


def _by_preference(likely: dict[str, float], sample: bytes) -> list[str]:
    ordered = sorted(likely, key=lambda name: -likely[name])
    western = sample.decode("cp1252", errors="replace")
    beyond = "".join(c for c in western if c > "\x7f")
    if _WESTERN.fullmatch(beyond) and not _SIGN_IN_WORD.search(western):
        # So few signs and no letter are what they are there: "15 €", "20 °C".
        signs = len(beyond) <= _MAX_SIGNS and not any(map(str.isalpha, beyond))
        if signs or likely.get("cp1252", 0.0) > _NEAR * likely[ordered[0]]:
            return ["cp1252", *ordered]
    return ordered
