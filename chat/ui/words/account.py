"""Who is at the page."""

WORDS = {
    "login_busy": (
        "Too many people are logging in at once. Try again in a few seconds.",
        "同时登录的人太多，请几秒后再试。",
    ),
    "log_out": ("Log out", "退出登录"),
}
