"""The index is built again, and what another model embedded is embedded anew."""

import shutil
from pathlib import Path

from host.connect import for_writing
from host.console import show_rebuilding
from host.settings import Settings


def test_after_a_change_of_embedder_the_index_is_rebuilt_by_command(
    tmp_path: Path, models_dir: Path, embedder_folder: str, capsys
) -> None:
    other = tmp_path / "other-model"
    shutil.copytree(embedder_folder, other)
    (other / "note.json").write_text("{}")
    (tmp_path / "heron.md").write_text("# Herons\n\nA heron stands in the pond.")
    data = {"data_dir": tmp_path / "var", "models_dir": models_dir, "device": "cpu"}
    with for_writing(Settings(**data, embedder=str(other)), print) as host:
        *_, added = host.add([tmp_path / "heron.md"])
        assert added["outcome"] == "indexed"
    with for_writing(Settings(**data), print) as host:
        (problem,) = host.library.check().problems
        assert "python app.py rebuild-index" in problem
        assert show_rebuilding(host.rebuild_index())
        assert host.library.check().problems == ()
    assert "rebuilt  1 documents, 1 passages" in capsys.readouterr().out
