"""The documents: the library, files that come in, files that were refused."""

WORDS = {
    "no_documents": ("No documents yet.", "还没有文档。"),
    "documents_count": ("{n} document|{n} documents", "{n} 个文档"),
    "documents_ready": ("{ready} of {total} ready", "{total} 个中 {ready} 个就绪"),
    "documents_refused": ("{n} refused|{n} refused", "{n} 个被拒绝"),
    "pages_count": ("{n} page|{n} pages", "{n} 页"),
    "pages_without_text": ("{n} page without text|{n} pages without text", "{n} 页没有文字"),
    "characters_count": ("{n} character|{n} characters", "{n} 个字符"),
    "read_in": ("read in {time}", "读取用时 {time}"),
    "stage_queued": ("waiting", "等待中"),
    "stage_parsing": ("reading", "读取中"),
    "stage_embedding": ("indexing", "索引中"),
    "stage_progress": ("{stage} · {done} of {total} passages", "{stage} · {done} / {total} 个段落"),
    "stage_left": ("{said} · about {time} left", "{said} · 大约还需 {time}"),
    "unreadable": ("It could not be read.", "无法读取。"),
    "remove_document": ("Remove this document", "移除这个文档"),
    "remove_document_label": ("Remove the document {title}", "移除文档《{title}》"),
    "remove_sure": ("Remove?", "移除？"),
    "add_documents": ("Add documents", "添加文档"),
    "already_there": ("{name} is in the library already.", "{name} 已经在文库里了。"),
    "upload_quota_own": (
        "More than {limit} of your files would wait to be read. Send fewer at once, or have the "
        "limit raised (--upload-quota).",
        "等待读取的您的文件将超过 {limit}。请一次少发一些，或请管理员调高上限（--upload-quota）。",
    ),
    "upload_quota_all": (
        "More than {limit} of everybody's files would wait to be read. Try again in a few "
        "minutes, or have the limit raised (--upload-quota-total).",
        "所有人等待读取的文件将超过 {limit}。请几分钟后再试，或请管理员调高上限"
        "（--upload-quota-total）。",
    ),
    "upload_too_large": (
        "The file is larger than {limit}. Split it and add the parts.",
        "文件大于 {limit}。请拆分后分别添加。",
    ),
    "was_refused": ("{name} was refused. {reason}", "{name} 被拒绝。{reason}"),
}
