"""The child process: one file in, pages and passages out as JSON on standard output.

A parser may crash, loop or fill the memory; here that harms nobody else. No torch, no database.

    python -m retrieval.parsers.child FORMAT FILE TOKENIZER MAX_TOKENS MEMORY_BYTES CPU_S
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from retrieval.errors import NothingToIndex, Unreadable
from retrieval.parsers.formats import Parsed, check_length

# Of UTF-8 and of JSON's own signs, more than the most characters take.
MAX_OUTPUT_BYTES = 128 * 2**20


# The module of each format and its parser.
_PARSERS = {
    "csv": ("csv", "parse_csv"),
    "docx": ("docx", "parse_docx"),
    "epub": ("epub", "parse_epub"),
    "html": ("html", "parse_html"),
    "md": ("text", "parse_markdown"),
    "pdf": ("pdf", "parse_pdf"),
    "txt": ("text", "parse_text"),
    "xlsx": ("xlsx", "parse_xlsx"),
}


def _parser(format: str) -> Callable[[Path], Parsed]:
    """The parser of a format; only its own libraries are loaded."""
    module, name = _PARSERS[format]
    parser: Callable[[Path], Parsed] = getattr(import_module(f"retrieval.parsers.{module}"), name)
    return parser


def limit(memory_bytes: int, cpu_s: int) -> None:
    try:
        import resource
    except ImportError:  # Windows: the parent's wall-time limit is what remains
        return
    for kind, soft, hard in (
        (resource.RLIMIT_AS, memory_bytes, memory_bytes),
        # The signal of the first says what it is about, the second kills without a word.
        (resource.RLIMIT_CPU, cpu_s, cpu_s + 5),
        (resource.RLIMIT_FSIZE, MAX_OUTPUT_BYTES, MAX_OUTPUT_BYTES),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        _, most = resource.getrlimit(kind)  # a child of this child has these already
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(kind, (soft, hard))
    os.nice(5)


def run(format: str, file: str, tokenizer: str, max_tokens: int) -> dict[str, Any]:
    try:
        parsed = _parser(format)(Path(file))
        from retrieval.chunking import Chunker

        check_length(sum(map(len, parsed.pages)))
        repeats = _repeats(parsed.pages)
        pages = ["" if n in repeats else page for n, page in enumerate(parsed.pages, 1)]
        cuts = Chunker(tokenizer, max_tokens).cut(pages, parsed.markdown)
        if not cuts:
            raise NothingToIndex("The file holds only white space. There is nothing to index.")
    except Unreadable as error:
        return _refused(error.reason)
    except (MemoryError, RecursionError) as error:
        said = "The file needs more memory than is allowed. Split it and add the parts."
        return _refused(said, may_pass=isinstance(error, MemoryError))
    except OSError as error:
        said = f"The stored copy cannot be read ({error.strerror}). Add it again."
        return _refused(said, may_pass=not isinstance(error, FileNotFoundError))
    return {
        "title": parsed.title,
        "pages": parsed.pages,
        "warnings": [*parsed.warnings, *_said(repeats, len(pages))],
        "labels": parsed.labels,
        "ocr_pages": parsed.ocr_pages,
        "passages": cuts,
    }


def _refused(reason: str, may_pass: bool = False) -> dict[str, Any]:
    return {"refused": reason, "may_pass": may_pass}


def _repeats(pages: Sequence[str]) -> dict[int, int]:
    """Pages, from 1, with the text of an earlier one, and which that is: found once is enough."""
    first: dict[str, int] = {}
    repeats = {}
    for number, page in enumerate(pages, 1):
        text = " ".join(page.split())
        if text and first.setdefault(text, number) != number:
            repeats[number] = first[text]
    return repeats


def _said(repeats: dict[int, int], pages: int) -> Iterable[str]:
    if repeats:
        shown = ", ".join(f"{page} ({of})" for page, of in list(repeats.items())[:10])
        more = f" and {len(repeats) - 10} more" if len(repeats) > 10 else ""
        of = f"{len(repeats):,} of {pages:,} pages"
        yield f"Same text as an earlier page, under which it is found, on {of}: {shown}{more}."


def main() -> None:
    format, file, tokenizer, max_tokens, memory_bytes, cpu_s = sys.argv[1:]
    # What a library prints goes to standard error; the answer has this channel alone.
    answer = os.dup(1)
    os.dup2(2, 1)
    limit(int(memory_bytes), int(cpu_s))
    result = run(format, file, tokenizer, int(max_tokens))
    with os.fdopen(answer, "w", encoding="utf-8", errors="replace") as out:
        json.dump(result, out, ensure_ascii=False)


if __name__ == "__main__":
    main()
