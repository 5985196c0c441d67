"""How far a text looks like language rather than like what a font without a character map leaves.

A broken map shows in four ways, and the score is the worst of them:

- characters that no text has (controls, private use, unassigned, U+FFFD);
- "words" that are none: cases, digits, signs and alphabets mixed within them (`3HQČåQtSURVW`);
- Latin letters in other proportions than any language has. What permutes an alphabet keeps the
  shape of its distribution and moves it to other letters: the ten of `_COMMON` make up 55 to 75% of
  a text in a language that is written with them, and 38% of letters drawn at random;
- hardly a letter without an accent, as where bytes of Cyrillic are taken for Latin (`Ïðèâåò`).
"""

import re
import unicodedata
from collections import Counter
from functools import lru_cache
from itertools import pairwise

# Below the first a text is noise; between the two it is kept, and a person is told.
ILLEGIBLE = 0.35
DOUBTFUL = 0.6

_COMMON = frozenset("eainorstlu")
_SHARE_BY_CHANCE = 10 / 26
_SHARE_OF_LANGUAGE = 0.52
_ENOUGH_LETTERS = 60  # fewer say nothing about proportions
_ENOUGH_ACCENTS = 8
_ACCENTED_AT_MOST = 0.5
_ACCENTED_IN_NONE = 0.8

_NUMBER = re.compile(
    r"[(\[$€£¥+\-–−~≈<>=\"“'’]{0,2}\d+(?:[.,:/'’\-–−x×]\d+)*[^\W\d_]{0,3}[%°)\]\"”'’.,:;!?+*†‡]{0,2}"
)
_SEPARATOR = re.compile(r"[^\w\\^`~|{}$]+|_+")
# Vowels and nasals with letters of their own, from Danish to Ewe.
_ALIKE = str.maketrans("ıɩłøæœɔɛəʊʌŋɲ", "iiloeeoeeuunn")
# A vowel sign of Burmese or an accent of its own goes with its letter.
_MARKS = re.compile(
    "["
    + "".join(c for c in map(chr, range(0x300, 0x1E00)) if unicodedata.category(c)[0] == "M")
    + "\u20d0-\u20f0\ufe00-\ufe0f\u200b-\u200f]+"
)
_STRANGE = frozenset({"Cc", "Cn", "Co", "Cs"})
_ALPHABETS = frozenset({"LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "GEORGIAN"})


def legibility(text: str) -> float:
    """From 0 (noise) to 1 (text), for text of any script; 1 where there is none at all."""
    text = _MARKS.sub("", text)
    visible = Counter(c for c in text if not c.isspace())
    total = visible.total()
    if not total:
        return 1.0
    strange = sum(n for c, n in visible.items() if _is_strange(c))
    known = max(0.0, 1 - 3 * strange / total)
    words, in_words = _words(text)
    return min(known, words, _proportions(in_words), _accents(visible))


def _is_strange(character: str) -> bool:
    return character == "\ufffd" or unicodedata.category(character) in _STRANGE


def _words(text: str) -> tuple[float, Counter[str]]:
    """The share of the text that stands in words and numbers, and the letters of the words."""
    good = bad = 0
    letters: Counter[str] = Counter()
    for token, count in Counter(text.split()).items():
        sound, unsound, words = _judged(token)
        good += sound * count
        bad += unsound * count
        for letter in words:
            letters[letter] += count
    return (good / (good + bad) if good + bad else 1.0), letters


# The same words come again on every page.
@lru_cache(maxsize=2**14)
def _judged(token: str) -> tuple[int, int, str]:
    """How many characters of a token speak for text and how many against; its words' letters."""
    if _NUMBER.fullmatch(token):
        return len(token), 0, ""
    parts = [part for part in _SEPARATOR.split(token) if part]
    words = "".join(part for part in parts if _is_word(part))
    signs = len(token) - sum(map(len, parts))
    # Signs alone are no fault of two (a bullet, "->") or of one kind (a rule such as "-----").
    too_many = signs > len(token) / 2 and len(token) > 2 and len(set(token)) > 2
    against = len(token) if too_many else sum(map(len, parts))
    return len(words), against - len(words), words.casefold()


def _is_word(part: str) -> bool:
    """Letters of one alphabet, capitals where words have them, with few digits between."""
    if not part.isalnum():
        return False
    switches = sum(a.isdigit() != b.isdigit() for a, b in pairwise(part))
    # A name such as JavaScript or McDonald goes from small to capital letters once or twice.
    rises = sum(a.islower() and b.isupper() for a, b in pairwise(part))
    alphabets = {kind for c in part if (kind := _alphabet(c))}
    few_greek = sum(_alphabet(c) == "GREEK" for c in part) <= 1
    mixed = len(alphabets) > 1 and not (alphabets == {"LATIN", "GREEK"} and few_greek)
    return switches <= 2 and rises <= 2 and not mixed


@lru_cache(maxsize=4096)
def _alphabet(character: str) -> str:
    """The name of a letter's alphabet, "" for what may stand beside any (digits, Han, signs)."""
    name = unicodedata.name(character, "").partition(" ")[0] if character.isalpha() else ""
    return name if name in _ALPHABETS else ""


def _proportions(letters: Counter[str]) -> float:
    folded: Counter[str] = Counter()
    for letter, n in letters.items():
        if _alphabet(letter) == "LATIN":
            folded[unicodedata.normalize("NFD", letter)[0].translate(_ALIKE)] += n
    total = folded.total()
    if total < _ENOUGH_LETTERS or total < 0.5 * letters.total():
        return 1.0
    share = sum(folded[c] for c in _COMMON) / total
    return _between(share, _SHARE_BY_CHANCE, _SHARE_OF_LANGUAGE)


def _accents(visible: Counter[str]) -> float:
    latin = {c: n for c, n in visible.items() if _alphabet(c) == "LATIN"}
    # The letters that bytes above 127 are taken for.
    accented = sum(n for c, n in latin.items() if "\u00c0" <= c <= "\u00ff")
    if accented < _ENOUGH_ACCENTS:
        return 1.0
    return 1 - _between(accented / sum(latin.values()), _ACCENTED_AT_MOST, _ACCENTED_IN_NONE)


def _between(value: float, low: float, high: float) -> float:
    """0 at or below ``low``, 1 at or above ``high``."""
    return min(1.0, max(0.0, (value - low) / (high - low)))
