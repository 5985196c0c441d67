"""What one request cost, and what the memory holds. Every number is measured where it happens."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineStats:
    """The cost of one request.

    `prompt_tokens = cached_tokens + computed_tokens`: everything in the session before the first
    generated token (of a request that ended before it, as far as it was computed; its `ttft_s` is
    0). `static_tokens` is the part of `cached_tokens` that came from the static prompt. What is
    computed again after a preemption is not counted again. `refreshed_tokens` of the session were
    computed again in full precision while nobody waited, between the request before and this one.

    On a CPU the device's memory is the process's resident memory (RSS); the peak is the largest
    value seen at the end of a step.
    """

    queue_s: float  # from submit to the first step that works on this request
    prefill_s: float  # from there to the first token
    ttft_s: float  # from submit to the first token: queue_s + prefill_s
    decode_s: float  # from the first token to the last
    total_s: float  # from submit to the last token, or to where it was cancelled
    prompt_tokens: int
    cached_tokens: int
    static_tokens: int
    computed_tokens: int
    generated_tokens: int
    decode_tokens_per_s: float  # of the tokens after the first; 0 where there is none
    refreshed_tokens: int
    kv_pages: int  # that the session held at the end, shared ones included
    kv_bytes: int
    device_bytes_before: int
    device_bytes_after: int
    device_bytes_peak: int


@dataclass(frozen=True)
class SessionInfo:
    """One open session.

    `pages` counts shared ones too, so the bytes of all sessions together can exceed the pool's.
    `approximate_tokens` lie on pages that were computed from coded KV and await an exact refresh.
    """

    id: int
    owner: str
    tokens: int
    kv_tokens: int
    pages: int
    coded_pages: int
    kv_bytes: int
    approximate_tokens: int
    busy: bool


@dataclass(frozen=True)
class MemoryReport:
    """Where the memory is.

    The first group is exact arithmetic over our own tensors and pages
    (`pages_static + pages_sessions + pages_cached + pages_free = pages_total`; a page that the
    static prompt shares with sessions counts as static). With a KV codec pages are counted in coded
    ones, and one in full precision as `pages_per_plain` of them.

    The second is what the device reports: on CUDA the allocator's and NVML's figures; on a CPU the
    device is this process, `allocated` is what our tensors hold, `reserved` the address space they
    asked for, `used` its resident memory and `total` the RAM it may use.
    """

    weights_bytes: int
    kv_pool_bytes: int
    kv_page_bytes: int
    kv_scratch_bytes: int  # of an exact refresh that goes on now
    pages_per_plain: int
    pages_total: int
    pages_static: int
    pages_sessions: int
    pages_cached: int
    pages_free: int
    device_name: str
    device_allocated_bytes: int
    device_reserved_bytes: int
    device_used_bytes: int
    device_total_bytes: int
    process_rss_bytes: int
