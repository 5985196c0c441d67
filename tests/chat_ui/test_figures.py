"""Numbers read well and are not rounded into something else."""

import pytest

from chat.ui import figures


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1_000, "1.0 kB"),
        (23_400, "23 kB"),
        (999_600, "1.0 MB"),
        (27_000_000, "27 MB"),
        (1_449_000_000, "1.4 GB"),
        (80_000_000_000, "80 GB"),
    ],
)
def test_sizes(size_bytes: int, text: str) -> None:
    assert figures.size(size_bytes) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (511, "511 B"),
        (512, "0.50 KiB"),
        (2**20, "1.00 MiB"),
        (2**27, "128 MiB"),
        (2**29, "0.50 GiB"),
        (9.996 * 2**30, "10.0 GiB"),
        (16 * 2**30, "16.0 GiB"),
        (2**62, "4096 PiB"),
    ],
)
def test_sizes_in_binary_units(size_bytes: float, text: str) -> None:
    assert figures.binary_size(size_bytes) == text


@pytest.mark.parametrize(("time_s", "text"), [(0.312, "0.31 s"), (4.25, "4.2 s"), (75.2, "75 s")])
def test_times(time_s: float, text: str) -> None:
    assert figures.seconds(time_s) == text


@pytest.mark.parametrize(
    ("time_s", "text"),
    [(0.2, "5 s"), (21.4, "20 s"), (57, "55 s"), (58, "1 min"), (200, "3 min"), (7_300, "2 h")],
)
def test_estimated_times(time_s: float, text: str) -> None:
    assert figures.roughly(time_s) == text


@pytest.mark.parametrize(("per_second", "text"), [(92.4, "92"), (8.25, "8.2")])
def test_rates(per_second: float, text: str) -> None:
    assert figures.rate(per_second) == text


def test_counts_agree_with_their_noun() -> None:
    assert figures.count(1, "page") == "1 page"
    assert figures.count(1204, "passage") == "1,204 passages"
    assert figures.count(2, "copy", "copies") == "2 copies"
