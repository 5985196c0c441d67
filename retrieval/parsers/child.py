"""The child process: one file in, pages and passages out as JSON on standard output.

A parser may crash, loop or fill the memory; here that harms nobody else. No torch, no database.

    python -m retrieval.parsers.child FORMAT FILE TOKENIZER MAX_TOKENS MEMORY_BYTES CPU_S
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from retrieval.errors import NothingToIndex, Unreadable
from retrieval.parsers.formats import Parsed


def _parser(format: str) -> Callable[[Path], Parsed]:
    """The parser of a format; only its own libraries are loaded."""
    if format == "pdf":
        from retrieval.parsers.pdf import parse_pdf

        return parse_pdf
    if format == "docx":
        from retrieval.parsers.docx import parse_docx

        return parse_docx
    if format == "html":
        from retrieval.parsers.html import parse_html

        return parse_html
    from retrieval.parsers.text import parse_markdown, parse_text

    return parse_markdown if format == "md" else parse_text


def limit(memory_bytes: int, cpu_s: int) -> None:
    try:
        import resource
    except ImportError:  # Windows: the parent's wall-time limit is what remains
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(5)


def run(format: str, file: str, tokenizer: str, max_tokens: int) -> dict[str, Any]:
    try:
        parsed = _parser(format)(Path(file))
        from retrieval.chunking import Chunker

        cuts = Chunker(tokenizer, max_tokens).cut(parsed.pages, parsed.markdown)
        if not cuts:
            raise NothingToIndex("The file holds only white space. There is nothing to index.")
    except Unreadable as error:
        return {"refused": error.reason}
    except (MemoryError, RecursionError):
        return {
            "refused": "The file needs more memory than is allowed. Split it and add the parts."
        }
    except OSError as error:
        return {"refused": f"The stored copy cannot be read ({error.strerror}). Add it again."}
    return {
        "title": parsed.title,
        "pages": parsed.pages,
        "warnings": parsed.warnings,
        "labels": parsed.labels,
        "ocr_pages": parsed.ocr_pages,
        "passages": cuts,
    }


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
