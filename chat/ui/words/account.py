"""Who is at the page."""

WORDS = {
    "log_out": ("Log out", "退出登录"),
}
