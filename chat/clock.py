"""What the system's clocks tell that one of them alone does not."""

from __future__ import annotations

import time

# A shorter difference is the two readings themselves.
NOTICEABLE_S = 1.0


def slept_s() -> float:
    """Seconds that the machine was suspended since it was started; only differences mean something.

    One of the system's clocks goes on during a suspend and another one stands still: boot time and
    monotonic time on Linux, monotonic time and uptime on macOS. 0 where no such pair is known. All
    durations of a turn are of a clock that stands still, so a sleep is in none of them.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    if hasattr(time, "CLOCK_UPTIME_RAW"):
        return time.clock_gettime(time.CLOCK_MONOTONIC) - time.clock_gettime(time.CLOCK_UPTIME_RAW)
    return 0.0


def in_words(seconds: float) -> str:
    """A length of time as a person would say it: 40 seconds, 12 minutes, 3 hours."""
    for size, unit in ((3600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= size:
            number = round(seconds / size)
            return f"{number} {unit}" if number == 1 else f"{number} {unit}s"
    return "a moment"
