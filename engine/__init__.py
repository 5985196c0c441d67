"""The inference engine: tokens in, tokens out. It knows nothing of documents, users or the page.

The names below are what others may use. They are imported on first use (PEP 562), so that reading
a setting or catching an error does not load PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.config import EngineConfig as EngineConfig
    from engine.engine import Engine as Engine
    from engine.generation import Generation as Generation
    from engine.generation import GenerationResult as GenerationResult
    from engine.kv.session import Session as Session
    from engine.sampling import Sampling as Sampling
    from engine.stats import EngineStats as EngineStats
    from engine.stats import MemoryReport as MemoryReport
    from engine.stats import SessionInfo as SessionInfo

_HOME = {
    "Engine": "engine.engine",
    "EngineConfig": "engine.config",
    "EngineStats": "engine.stats",
    "Generation": "engine.generation",
    "GenerationResult": "engine.generation",
    "MemoryReport": "engine.stats",
    "Sampling": "engine.sampling",
    "Session": "engine.kv.session",
    "SessionInfo": "engine.stats",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
