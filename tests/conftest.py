"""What every test may count on: the real models, no network, few threads, no stray settings."""

import os
from pathlib import Path

import pytest

from host import environment
from host.models import CHAT_MODEL, EMBEDDER, KnownModel

REPOSITORY = Path(__file__).parents[1]

# Read before the settings of the person who runs the tests are taken away.
_MODELS_DIR = Path(os.environ.get("PAGETURN_MODELS_DIR", REPOSITORY / "data/var/models")).absolute()
for _name in [name for name in os.environ if name.startswith("PAGETURN_")]:
    del os.environ[_name]
# Three workers run the tests on two cores: one thread each, which waits for nobody.
os.environ.setdefault("OMP_NUM_THREADS", "1")
environment.prepare()


@pytest.fixture(scope="session")
def models_dir() -> Path:
    """The folder of the two default models, both of them there."""
    for model in (CHAT_MODEL, EMBEDDER):
        missing = model.missing(_MODELS_DIR)
        if missing:
            pytest.fail(f"{model.name} is not in {_MODELS_DIR}. Run: python app.py fetch")
    return _MODELS_DIR


@pytest.fixture(scope="session")
def chat_model(models_dir: Path) -> str:
    """The path of the default chat model, for EngineConfig.model."""
    return _path(CHAT_MODEL, models_dir)


@pytest.fixture(scope="session")
def embedder_folder(models_dir: Path) -> str:
    """The folder of the default embedding model, for Embedder."""
    return _path(EMBEDDER, models_dir)


@pytest.fixture(scope="session")
def library_dir() -> Path:
    """The sample library."""
    return REPOSITORY / "data/library"


def _path(model: KnownModel, models_dir: Path) -> str:
    return str(model.folder(models_dir) / model.load)
