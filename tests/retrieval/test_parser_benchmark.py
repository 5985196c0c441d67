"""What `python -m benchmarks.parsers` makes of a manifest."""

import json
import subprocess
import sys
from pathlib import Path

from tests.retrieval.make_files import pdf

HEAD = "file\tkind\texpect\tmust_contain\tmust_not_contain\tnote"
CASES = (
    ("good.pdf", "text", "Heron waits‖FISH", "secret", True, "text"),
    ("lacks.pdf", "text", "no such words", "", False, "wrong_text"),
    ("locked.pdf", "password", "", "", True, "password"),
    ("blank.pdf", "no_text", "", "", True, "no_text"),
    ("empty.pdf", "empty", "", "", True, "empty"),
    ("broken.pdf", "corrupt_or_no_text", "", "", True, "corrupt"),
    ("old.doc", "text_or_unsupported", "", "", True, "unsupported"),
    ("#a%2F.pdf", "text", "Heron", "", True, "text"),
)


def test_each_file_is_judged_by_what_a_person_is_told(tmp_path: Path, models_dir: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    page = pdf(["The heron\nwaits for fish"])
    written = {
        "locked.pdf": pdf(["x"], password="p"),
        "blank.pdf": pdf([""]),
        "empty.pdf": b"",
        "broken.pdf": b"%PDF-1.4 and no more",
        "old.doc": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
    }
    rows = [HEAD]
    for number, (name, expect, contains, excludes, *_) in enumerate(CASES):
        (files / name).write_bytes(written.get(name, page + b"%%%d\n" % number))
        rows.append("\t".join([name, "", expect, contains, excludes, 'a "note"']))
    (tmp_path / "manifest.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "benchmarks.parsers", "--models", str(models_dir)]
    command += ["--manifest", str(tmp_path / "manifest.tsv"), "--json", str(tmp_path / "out.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "pass_fraction" in done.stdout
    report = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    judged = {row["case"]: (row["pass"], row["outcome"]) for row in report["rows"]}
    assert judged == {name: (good, outcome) for name, *_, good, outcome in CASES}
    assert report["ratios"]["pass_fraction"] == sum(case[4] for case in CASES) / len(CASES)
    assert all(row["seconds"] > 0 for row in report["rows"])
    assert all(row["peak_bytes"] > 2**20 for row in report["rows"] if row["outcome"] == "text")
