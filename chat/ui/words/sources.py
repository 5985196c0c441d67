"""The passages beside the answer."""

WORDS = {
    "sources_empty": (
        "The passages that an answer rests on appear here, with the supporting words marked.",
        "回答所依据的段落会显示在这里，并标出支持它的词句。",
    ),
    "passages_found": (
        "{n} passage found. What the answer rests on is marked when it is complete."
        "|{n} passages found. What the answer rests on is marked when it is complete.",
        "找到 {n} 个段落。回答完成后会标出它所依据的内容。",
    ),
    "found_none": (
        "Search found no passage for this question.",
        "没有找到与这个问题有关的段落。",
    ),
    "page": ("page {page}", "第 {page} 页"),
    "page_labelled": ("page {label} ({page} in the file)", "第 {label} 页（文件中第 {page} 页）"),
    "by_ocr": ("read by OCR", "由 OCR 识别"),
    "by_ocr_hint": (
        "The page is a picture. Its text was recognised and may hold mistakes.",
        "这一页是图片，文字由程序识别，可能有错。",
    ),
    "removed": ("removed", "已移除"),
    "removed_hint": (
        "The document was removed from the library. The conversation keeps what it quoted.",
        "文档已从文库移除。对话保留它引用过的内容。",
    ),
    "also_found": ("Also found", "也找到了"),
    "also_found_hint": (
        "Found by search and not cited by this answer.",
        "搜索找到，但这个回答没有引用。",
    ),
    "none_pending": ("The answer is still being written.", "回答还在写。"),
    "none_not_found": (
        "The documents hold nothing on this question.",
        "文档里没有关于这个问题的内容。",
    ),
    "none_supported": (
        "No passage supports a sentence of this answer closely enough to be cited.",
        "没有段落足够支持这个回答中的句子，因此没有引用。",
    ),
    "none_at_all": ("This answer rests on no passage.", "这个回答没有依据任何段落。"),
    "show_page": ("Show the page", "显示原页"),
    "page_image": (
        "Page {page} of {title}, the supporting words boxed",
        "《{title}》第 {page} 页，已框出支持的词句",
    ),
    "page_image_failed": (
        "The page could not be drawn. The passage above is its text.",
        "无法显示原页。上面的段落就是它的文字。",
    ),
}
