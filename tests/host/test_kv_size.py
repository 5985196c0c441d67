"""`kv-size`: how much memory KV takes, from the command line."""

import json

import pytest

from app import main

SEVEN_B = ("--layers", "32", "--heads", "32", "--head-dim", "128", "--tokens", "1024")
GEMMA = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "text_config": {
        "num_hidden_layers": 34,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 1024,
    },
}


@pytest.fixture
def kv_size(models_dir, monkeypatch, capsys):
    """kv_size("--tokens", "1") -> exit status, output, errors."""
    monkeypatch.setenv("PAGETURN_MODELS_DIR", str(models_dir))

    def kv_size(*arguments):
        status = main(["kv-size", *map(str, arguments)])
        return status, *capsys.readouterr()

    return kv_size


def line(shown, title, kv_dtype):
    """The line of a dtype in the table of an attention."""
    part = shown.split(f"\n{title}: ")[1].split("\n\n")[0]
    return next(line for line in part.splitlines() if line.startswith(kv_dtype)).split()


def test_the_articles_7b_model_takes_half_a_gibibyte(run):
    done = run("kv-size", *SEVEN_B, "--memory", "16GiB")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    line_16_bit = line(done.stdout, "MHA", "bfloat16, float16")
    assert line_16_bit[2:] == ["524,288", "0.50", "GiB", "0.50", "GiB", "32,768", "32"]
    assert line(done.stdout, "GQA", "bfloat16, float16")[2:5] == ["131,072", "128", "MiB"]
    assert line(done.stdout, "MQA", "int8")[1] == "8,704"
    assert max(map(len, done.stdout.splitlines())) <= 88


def test_json_holds_every_attention_and_dtype(kv_size):
    status, out, _ = kv_size(*SEVEN_B, "--sessions", 4, "--memory", "16GiB", "--json")
    found = json.loads(out)
    assert status == 0
    assert [one["name"] for one in found["attentions"]] == ["MHA", "GQA", "MQA"]
    rows = {row["kv_dtype"]: row["size"] for row in found["attentions"][0]["rows"]}
    assert set(rows) == {"float32", "bfloat16", "float16", "fp8", "int8", "k8v4", "int4"}
    assert rows["bfloat16"]["total_bytes"] == 4 * 2**29
    assert found["memory_bytes"] == 16 * 2**30


def test_the_model_that_is_set_is_taken_and_the_device_measured(kv_size):
    status, out, _ = kv_size("--tokens", 8192, "--sessions", 2)
    assert status == 0
    assert "30 layers, 9 query heads of 64 numbers" in out
    assert "GQA: 3 KV heads, as the model is" in out
    assert line(out, "GQA", "bfloat16, float16")[2:5] == ["23,040", "180", "MiB"]
    assert "(all of the RAM" in out or "(all of the VRAM" in out


def test_a_configuration_is_enough_also_of_a_model_that_does_not_run_here(kv_size, tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(GEMMA))
    status, out, _ = kv_size("--model", file, "--tokens", 1000, "--kv-heads", 2)
    assert status == 0
    assert "34 layers, 8 query heads of 256 numbers" in out
    assert "GQA: 2 KV heads" in out, "the option wins"
    assert "sliding window are counted in full" in out


def test_a_latent_is_counted_and_what_is_assumed_is_said(kv_size, tmp_path):
    file = tmp_path / "deepseek.json"
    config = {"num_hidden_layers": 60, "num_attention_heads": 128, "v_head_dim": 128}
    file.write_text(json.dumps({**config, "kv_lora_rank": 512, "qk_rope_head_dim": 64}))
    status, out, _ = kv_size("--model", file, "--tokens", 1000)
    assert status == 0
    assert line(out, "MLA", "bfloat16, float16")[2] == "69,120"
    assert line(out, "MLA", "k8v4")[1:] == ["-"] * 5
    assert "k8v4: MLA keeps one latent for both" in out
    assert "MLA is no attention of this engine" in out


@pytest.mark.parametrize(
    ("arguments", "said", "status"),
    [
        (["--layers", 32], "--tokens", 2),
        (["--layers", 32, "--tokens", 10], "add --heads N", 2),
        ([*SEVEN_B, "--kv-heads", 5], "cannot share 5 KV heads", 2),
        ([*SEVEN_B, "--sessions", 0], "--sessions must lie between 1 and", 2),
        ([*SEVEN_B, "--memory", "lots"], "--memory 'lots' is not understood", 2),
        ([*SEVEN_B, "--dtype", "int8"], "--dtype", 2),
        (["--tokens", 10, "--model", "no-such-model"], "There is no model", 1),
    ],
)
def test_what_cannot_be_reckoned_is_refused_in_a_sentence(kv_size, arguments, said, status):
    exit_status, out, err = kv_size(*arguments)
    assert (exit_status, out) == (status, "")
    assert said in err
    assert err.count("\n") == 1
