"""What KV would take: the calculator of the memory page."""

WORDS = {
    "kv_title": ("What would it take?", "需要多少内存？"),
    "kv_note": (
        "KV memory, calculated from sizes and not measured. The loaded model's sizes stand here "
        "first, and the memory that its weights leave of the device.",
        "按尺寸计算的 KV 内存，并非实测。初始值是已加载模型的尺寸，以及设备除权重外的内存。",
    ),
    "kv_tokens": ("Tokens in a session", "每个会话的词元"),
    "kv_sessions": ("Sessions at once", "同时的会话"),
    "kv_layers": ("Layers", "层数"),
    "kv_heads": ("Query heads", "查询头"),
    "kv_kv_heads": ("KV heads", "KV 头"),
    "kv_head_dim": ("Numbers in a head", "每头的维度"),
    "kv_memory": ("Memory for KV, GiB", "KV 可用内存（GiB）"),
    "kv_uneven": (
        "The query heads cannot share these KV heads evenly: change one of the two.",
        "查询头无法平均共用这些 KV 头：请修改其中之一。",
    ),
    "kv_out_of_range": (
        "One of these numbers is missing or out of range.",
        "有数字缺失或超出范围。",
    ),
    "kv_answer": ("{sessions} of {tokens}", "{sessions}，每个 {tokens}"),
    "kv_sessions_count": ("{n} session|{n} sessions", "{n} 个会话"),
    "kv_tokens_count": ("{n} token|{n} tokens", "{n} 个词元"),
    "kv_heads_count": ("{n} KV head|{n} KV heads", "{n} 个 KV 头"),
    "kv_own": (" (as given above)", "（如上所填）"),
    "kv_plain": ("full precision", "全精度"),
    "kv_coded": ("coded, with scales", "编码，含缩放系数"),
    "kv_over": ("more than the memory given", "超过所填内存"),
    "kv_table": ("KV memory by attention and dtype", "按注意力和数据类型的 KV 内存"),
    "kv_dtype": ("KV dtype", "KV 数据类型"),
    "kv_token": ("A token", "每个词元"),
    "kv_session": ("A session", "每个会话"),
    "kv_together": ("All sessions", "全部会话"),
    "kv_longest": ("Longest session, tokens", "最长会话（词元）"),
    "kv_fit": ("Such sessions that fit", "可容纳的会话"),
    "kv_explained": (
        "Sessions share nothing here. Where pages are coded, the first page of a session ({page} "
        "tokens) and its {window} newest tokens stay in {dtype} and are counted so. The longest "
        "session has all the memory for itself. 1 GiB is 1,073,741,824 bytes.",
        "这里各会话不共用任何页。编码时，每个会话的第一页（{page} 个词元）和最新的 {window} "
        "个词元仍为 {dtype}，并照此计入。最长会话独占全部内存。1 GiB 等于 1,073,741,824 字节。",
    ),
    "kv_refused": (
        "{names}: heads of this size can't be rotated, which 4 bits need.",
        "{names}：这种大小的头无法旋转，而 4 位需要旋转。",
    ),
}
