"""The frame: what stands around the parts of the page."""

WORDS = {
    "the_chat_model": ("The chat model", "对话模型"),
    "parts_of_the_page": ("Parts of the page", "页面各部分"),
    "beside_the_answer": ("Beside the answer", "答案旁边"),
    "nav_history": ("Chats", "对话"),
    "nav_chat": ("Answer", "回答"),
    "nav_sources": ("Sources", "来源"),
    "nav_documents": ("Library", "文库"),
    "switch_language": ("中文", "English"),
    "switch_language_hint": ("Show the page in Chinese (中文)", "用英文显示 (English)"),
    "welcome_title": ("Ask your own documents", "向自己的文档提问"),
    "welcome_text": (
        "Add files to the library, then ask. Every answer shows the passages it rests on and what "
        "it cost. Nothing leaves this machine.",
        "把文件加入文库，然后提问。每个回答都会显示它所依据的段落和它的开销。任何内容都不会离开这台电脑。",
    ),
    "try_samples": ("Try it on the sample library", "用示例文库试一试"),
    "no_samples": (
        "The sample library is not installed here. Add files of your own instead.",
        "这里没有安装示例文库。请添加自己的文件。",
    ),
    "something_wrong": (
        "Something went wrong inside Pageturn; its log says what. Please try again.",
        "Pageturn 内部出错，日志里有详情。请再试一次。",
    ),
}
