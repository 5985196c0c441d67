"""What every benchmark writes: `machine`, `rows` and `ratios`; and the table that people read."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from engine.device import cpu_name, ram_limit_bytes

_PACKAGES = ("torch", "transformers", "numpy", "faiss-cpu", "gradio")


def machine() -> dict[str, Any]:
    """Where a figure comes from."""
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "ram_bytes": ram_limit_bytes(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "versions": {name: version(name) for name in _PACKAGES},
    }


@dataclass
class Report:
    """Rows of measurements (each with `case` and `system`) and ratios made from them."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    ratios: dict[str, Any] = field(default_factory=dict)

    def add(self, case: str, system: str, **measured: Any) -> None:
        """Add a row. Names of measured fields end in their unit (`_s`, `_bytes`, `_tokens`...)."""
        self.rows.append({"case": case, "system": system, **measured})

    def write(self, path: Path | None) -> None:
        """Write the JSON object, if a path is given."""
        if path is not None:
            data = {"machine": machine(), "rows": self.rows, "ratios": self.ratios}
            path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")

    def show(self, title: str) -> None:
        """Print rows and ratios as a table."""
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        lines = [[_text(row.get(name)) for name in names] for row in self.rows]
        if len(names) > max(len(lines), 8):  # more fields than a line holds: a field a line
            names, *lines = [list(line) for line in zip(names, *lines, strict=True)]
        table = Table(*names, title=title)
        for line in lines:
            table.add_row(*line)
        console = Console()
        if not console.is_terminal:  # a file has no edge to keep to
            console.width = 200
        console.print(table)
        for name, value in self.ratios.items():
            console.print(f"{name}: {_text(value)}")


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_text(item)}" for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(_text, value))
    return "" if value is None else str(value)
