"""Where the memory is: pages by their use, weights, and what the device says of itself."""

from engine.device import device_memory
from engine.executor import Executor
from engine.kv.census import PageCounts
from engine.kv.pool import PagePool
from engine.memory import process_rss_bytes
from engine.stats import MemoryReport


def memory_report(
    executor: Executor, pool: PagePool, counts: PageCounts, scratch: int
) -> MemoryReport:
    """Put the report together.

    Args:
        executor: holds the weights.
        pool: holds the pages.
        counts: of the pages, by their use.
        scratch: bytes that jobs hold beside the pool.
    """
    weights = executor.weights_bytes
    device = device_memory(executor.device, weights + pool.size_bytes + scratch)
    return MemoryReport(
        weights_bytes=weights,
        kv_pool_bytes=pool.size_bytes,
        kv_page_bytes=pool.layout.unit_bytes,
        kv_scratch_bytes=scratch,
        pages_per_plain=pool.layout.units_per_page,
        pages_total=counts.total,
        pages_static=counts.static,
        pages_sessions=counts.sessions,
        pages_cached=counts.cached,
        pages_free=counts.free,
        device_name=device.name,
        device_allocated_bytes=device.allocated_bytes,
        device_reserved_bytes=device.reserved_bytes,
        device_used_bytes=device.used_bytes,
        device_total_bytes=device.total_bytes,
        process_rss_bytes=process_rss_bytes(),
    )
