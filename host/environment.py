"""Process-wide switches of the libraries, set before any of them is imported."""

import os
from pathlib import Path

UPLOADS = "uploads"  # in the data folder: files on their way from the browser into the library
# Nothing but an explicit fetch uses the network: no hub look-ups, no telemetry.
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "GRADIO_ANALYTICS_ENABLED": "False",
}
_QUIET = {
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",  # transformers' bar while it loads weights, too
}


def prepare(*, data_dir: Path | None = None) -> None:
    """Keep the libraries offline and quiet; with `data_dir`, keep the page's temporary files there.

    A value that the person has set is kept, except that nothing may switch the network on.
    """
    os.environ.update(_OFFLINE)
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    if data_dir is not None:
        os.environ["GRADIO_TEMP_DIR"] = str(data_dir.absolute() / UPLOADS)
