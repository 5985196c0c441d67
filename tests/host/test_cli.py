"""The command line on a data folder that no server holds."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

KV_NOTE = """# Size of a KV cache

For every token the cache holds one key and one value vector in every layer. A model with 32
layers, 32 heads of 128 numbers and two bytes a number needs 512 KiB for each token.
"""
QUESTION = "How much memory does the KV cache need for each token?"


@pytest.fixture(scope="module")
def indexed(run, tmp_path_factory) -> Path:
    """A data folder with one document, added by the command line."""
    folder = tmp_path_factory.mktemp("indexed")
    note = folder / "kv-note.md"
    note.write_text(KV_NOTE)
    done = run("add", note, "--data-dir", folder / "var")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "indexed  kv-note.md  (1 page, 1 passage)\n"
    return folder / "var"


# What is refused: one sentence, exit status 2, no traceback ---------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--colour", "red"], "No such option: --colour"),
        (["frobnicate"], "No such command 'frobnicate'"),
        (["add"], "Missing argument"),
        (["--port", "99999"], "--port must be at most 65535, not '99999'."),
        (["documents", "--page-size", "16"], "No such option: --page-size"),
        (["--page-size", "12", "documents"], "--page-size must be a power of two"),
        (["ask", "x", "--kv-memory", "1.5"], "0 < x <= 1"),
    ],
)
def test_a_bad_command_line_is_refused_in_a_sentence(run, arguments, said):
    refused = run(*arguments)
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert refused.stderr.startswith("error: ")
    assert said in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_an_unknown_variable_is_refused(run):
    refused = run("documents", PAGETURN_DATADIR="/tmp")
    assert refused.returncode == 2
    assert "PAGETURN_DATADIR is not a setting" in refused.stderr


@pytest.mark.parametrize(
    ("options", "said", "status"),
    [
        (["--device", "cuda"], "no CUDA device", 2),
        (["--kv-memory", "1KB"], "page", 2),
        (["--model", "nobody/nothing-at-all"], "fetch nobody/nothing-at-all", 1),
        (["--model", "no-such-folder"], "There is no model 'no-such-folder'", 1),
        (["--data-dir", "/proc/pageturn"], "cannot be written", 1),
        (["--host", "no.such.host.invalid"], "--host", 1),
    ],
)
def test_settings_that_contradict_this_machine_stop_the_server(
    run, tmp_path, options, said, status
):
    refused = run("--port", "0", "--data-dir", tmp_path, *options)
    assert refused.returncode == status
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "server.json").exists()


def test_a_port_in_use_is_said_with_the_option_that_changes_it(run, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused = run("--port", port, "--data-dir", tmp_path)
    assert refused.returncode == 1
    assert f"Port {port}" in refused.stderr
    assert "--port" in refused.stderr


def test_without_the_default_models_a_server_for_others_names_fetch(run, tmp_path):
    """On loopback, a page offers it; beyond it, whoever comes first could start it."""
    address = ("--host", "0.0.0.0", "--port", "0")
    refused = run("--data-dir", tmp_path, *address, PAGETURN_MODELS_DIR=str(tmp_path))
    assert refused.returncode == 1
    assert "python app.py fetch" in refused.stderr


# Documents ------------------------------------------------------------------------------------


def test_a_folder_without_data_has_no_documents_and_stays_untouched(run, tmp_path):
    listed = run("documents", "--json", "--data-dir", tmp_path / "none")
    assert (listed.returncode, listed.stdout) == (0, "[]\n")
    assert not (tmp_path / "none").exists()


def test_every_file_gets_its_line_and_one_bad_file_stops_nothing(run, tmp_path):
    files = tmp_path / "files"
    files.mkdir()
    (files / "a-empty.md").write_text("")
    (files / "b-photo.heic").write_bytes(b"\0\1\2")
    (files / "c-note.md").write_text(KV_NOTE)
    (files / "d-same.md").write_text(KV_NOTE)
    done = run("add", files, files / "gone.txt", "--data-dir", tmp_path / "var")
    lines = sorted(done.stdout.splitlines())
    assert done.returncode == 1
    assert len(lines) == 5
    assert lines[0].startswith("already there  d-same.md") or lines[1].startswith("indexed  d-same")
    assert any(line.startswith("indexed  c-note.md  (1 page, 1 passage)") for line in lines)
    assert any(line.startswith("refused  a-empty.md: The file is empty") for line in lines)
    assert any(line.startswith("refused  b-photo.heic: ") for line in lines)
    assert any(line.startswith("refused  gone.txt: ") for line in lines)


def test_a_file_that_is_there_is_not_indexed_again(run, indexed):
    again = run("add", indexed.parent / "kv-note.md", "--data-dir", indexed)
    assert (again.returncode, again.stdout) == (0, "already there  kv-note.md\n")


def test_the_list_is_pure_json_and_loads_no_model(run, indexed):
    listed = run("documents", "--json", "--data-dir", indexed)
    [document] = json.loads(listed.stdout)
    assert (document["name"], document["state"], document["passages"]) == ("kv-note.md", "ready", 1)
    code = (
        f"import sys, app; app.main(['documents', '--data-dir', {str(indexed)!r}]); "
        "sys.exit(' '.join({'torch', 'transformers', 'gradio', 'faiss'} & set(sys.modules)) or 0)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (loaded.returncode, loaded.stderr) == (0, "")


def test_a_document_is_removed_and_an_unknown_one_is_said_to_be_unknown(run, tmp_path):
    note = tmp_path / "note.md"
    note.write_text("One line on paging.\n")
    folder = ["--data-dir", tmp_path / "var"]
    assert run("add", note, *folder).returncode == 0
    [document] = json.loads(run("documents", "--json", *folder).stdout)
    removed = run("remove", document["id"], *folder)
    assert (removed.returncode, removed.stdout) == (0, "removed  note.md\n")
    assert json.loads(run("documents", "--json", *folder).stdout) == []
    again = run("remove", document["id"], *folder)
    assert again.returncode == 1
    assert f"There is no document '{document['id']}'" in again.stderr


# Questions ------------------------------------------------------------------------------------


def test_a_question_to_an_empty_library_says_what_to_do(run, tmp_path):
    refused = run("ask", QUESTION, "--data-dir", tmp_path)
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert "python app.py add data/library" in refused.stderr


def test_a_conversation_goes_on_in_another_process(run, indexed):
    options = ["--json", "--data-dir", indexed]
    first = run("ask", QUESTION, "--max-tokens", "24", *options)
    assert first.returncode == 0, first.stderr
    turn = json.loads(first.stdout)
    assert turn["question"] == QUESTION
    assert turn["answer"].strip()
    assert {"session", "turn", "citations", "retrieved", "stats", "finish_reason"} <= turn.keys()
    found = [*turn["citations"], *turn["retrieved"]]
    assert found
    for passage in found:
        span = slice(passage["char_start"], passage["char_end"])
        assert KV_NOTE[span] == passage["text"]
    second = run("ask", "And for two tokens?", "--session", turn["session"], *options)
    assert second.returncode == 0, second.stderr
    stats = json.loads(second.stdout)["stats"]
    assert stats["generated_tokens"] <= 24  # the conversation keeps what it was asked with
    history = turn["stats"]["prompt_tokens"] + turn["stats"]["generated_tokens"]
    # Nothing is kept between processes but the static prompt, computed at the start of this one.
    assert stats["cached_tokens"] == stats["static_tokens"] > 0
    assert stats["computed_tokens"] >= history - stats["static_tokens"]


def test_an_option_out_of_range_is_refused_before_a_model_is_loaded(run, indexed):
    refused = run("ask", QUESTION, "--temperature", "-1", "--data-dir", indexed)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: temperature is -1")


def test_ctrl_c_ends_a_command_without_a_traceback_and_frees_the_folder(indexed, models_dir, run):
    command = [sys.executable, "app.py", "ask", QUESTION, "--max-tokens", "400"]
    with subprocess.Popen(
        [*command, "--data-dir", str(indexed)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PAGETURN_MODELS_DIR": str(models_dir)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # What starts the tests in the background has it ignored, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as asking:
        assert asking.stderr.readline() == "Loading the weights\n"
        assert asking.stdout.read(1), "the answer was to begin"
        asking.send_signal(signal.SIGINT)
        _, errors = asking.communicate(timeout=60)
    assert asking.returncode == 130
    assert "Traceback" not in errors
    assert run("documents", "--data-dir", indexed).returncode == 0


# Doctor ---------------------------------------------------------------------------------------


def test_doctor_finds_everything_in_order(run, indexed):
    done = run("doctor", "--json", "--data-dir", indexed)
    report = json.loads(done.stdout)
    bad = [check for check in report["checks"] if not check["ok"]]
    assert (done.returncode, report["ok"], bad) == (0, True, [])
    names = [check["name"] for check in report["checks"]]
    assert {"Python", "packages", "device", "chat model", "embedder", "database"} <= set(names)


def test_doctor_names_the_command_that_brings_a_missing_model(run, tmp_path):
    done = run("doctor", "--data-dir", tmp_path, PAGETURN_MODELS_DIR=str(tmp_path))
    assert done.returncode == 1
    assert "mend it: python app.py fetch SmolLM2-135M-Instruct" in done.stdout
    assert "mend it: python app.py fetch all-MiniLM-L6-v2" in done.stdout


def test_doctor_works_where_nothing_is_installed(tmp_path):
    # -S leaves out site-packages: only the standard library is there.
    done = subprocess.run(
        [sys.executable, "-S", "app.py", "doctor"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "mend it: make run" in done.stdout
    other = subprocess.run(
        [sys.executable, "-S", "app.py", "documents"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert other.returncode == 1
    assert other.stderr.startswith("error: the package")
