"""How much computing a file may cost its parser, counted by the processor's clock.

Wall time would make what is read depend on what else the machine does.
"""

import time
from typing import Self

try:
    import resource
except ImportError:  # Windows: the parent's wall-time limit is what remains
    resource = None  # type: ignore[assignment]


class Budget:
    """Seconds for all steps together, and a bound on each of them.

    A step that exceeds its bound ends the process (SIGXCPU): native code cannot be interrupted
    otherwise.
    """

    def __init__(self, seconds: float, step_s: int) -> None:
        self._until = time.process_time() + seconds
        self._step_s = step_s

    @property
    def is_spent(self) -> bool:
        return time.process_time() > self._until

    def step(self) -> None:
        """Begin a step."""
        _allow(self._step_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Lift the bound of the last step; the limit of the whole process stays."""
        _allow(None)


def _allow(seconds: int | None) -> None:
    if resource is None:
        return
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    bound = most if seconds is None else int(time.process_time()) + 1 + seconds
    if most != resource.RLIM_INFINITY:
        bound = min(bound, most)
    resource.setrlimit(resource.RLIMIT_CPU, (bound, most))
