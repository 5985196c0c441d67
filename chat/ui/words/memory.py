"""What the memory holds."""

WORDS = {
    "memory_weights": ("Weights", "权重"),
    "memory_weights_hint": ("The model itself", "模型本身"),
    "memory_static": ("Static prompt", "固定提示"),
    "memory_static_hint": (
        "The system prompt, computed once and shared by every conversation",
        "系统提示，只计算一次，所有对话共用",
    ),
    "memory_sessions": ("Sessions", "会话"),
    "memory_sessions_hint": (
        "Conversations whose KV is kept for their next turn",
        "为下一轮保留 KV 的对话",
    ),
    "memory_cached": ("Cached", "缓存"),
    "memory_cached_hint": (
        "Pages that nobody holds now and that are found again by content; given up first",
        "现在无人持有、可按内容找回的页；最先让出",
    ),
    "memory_free": ("Free pages", "空闲页"),
    "memory_free_hint": ("Room for more conversation", "可供更多对话使用"),
    "memory_process": ("{size} in use by this process", "本进程使用 {size}"),
    "memory_device": ("{used} of {total} in use", "已用 {used}，共 {total}"),
}
