"""Sentences of the services, which are stored and said in English, in the page's language."""

from __future__ import annotations

import re
from collections.abc import Sequence

from chat import notes
from chat.ui.i18n import Words

# (the English sentence with its figures as groups, the Chinese one with {0}, {1} ... for them)
_CHINESE: Sequence[tuple[re.Pattern[str], str]] = [
    (re.compile(pattern), chinese)
    for pattern, chinese in (
        # What follows a reason, which is itself translated; before those that end in anything.
        (r"(.*) It is tried again soon\.", "{0}稍后会自动重试。"),
        (r"(.*) It was tried (\d+) times\.", "{0}已尝试 {1} 次。"),
        (r"(.*) What was read before stays\.", "{0}之前读取的内容仍然保留。"),
        (
            r"Reading the file took longer than ([\d.]+) s and was stopped\. .*",
            "读取文件超过 {0} 秒，已停止。请拆分后添加各部分，或导出为更简单的格式。",
        ),
        (
            r"(?:Reading the file takes|The file needs) more "
            r"(?>.* memory)(?>.*? Split it and add ).*",
            "读取文件需要的内存超过允许的上限。请拆分后添加各部分。",
        ),
        (
            r"Reading the file was stopped from outside, .*",
            "读取文件时被外部终止，可能是内存不足。请关闭其他程序，或拆分后添加。",
        ),
        (
            r"There was too little memory to index the file\. .*",
            "内存不足，无法索引文件。请关闭其他程序，或分成几部分添加。",
        ),
        (
            r"The stored copy of the file is damaged or missing\. .*",
            "文件的副本已损坏或丢失。请重新添加文件。",
        ),
        (
            r"No copy of (.*) is there to be read\. .*",
            "没有可以读取的 {0} 的副本。请重新添加文件。",
        ),
        (
            r"Nothing in the ([\d,]+) documents searched answers this\.",
            "所搜索的 {0} 个文档都没有回答这个问题。",
        ),
        (
            r"Nothing in the one document searched answers this\.",
            "所搜索的这个文档没有回答这个问题。",
        ),
        (
            r"Nothing in the documents searched \(([\d,]+)\) seems to answer this; .*",
            "所搜索的 {0} 个文档似乎都没有回答这个问题；仍然询问了模型。",
        ),
        (
            r"([\d,]+) of ([\d,]+) passages of “(.*)” were read\.",
            "模型读了《{2}》{1} 个段落中的 {0} 个。",
        ),
        (
            r"([\d,]+) of ([\d,]+) passages of (\d+) documents were read\.",
            "模型读了 {2} 个文档的 {1} 个段落中的 {0} 个。",
        ),
        (
            r"I am here for questions about your documents, about “(.*)” for example\.",
            "我回答关于您的文档的问题，例如关于《{0}》。",
        ),
        (
            r"I am here for questions about your documents\.",
            "我回答关于您的文档的问题。",
        ),
        (
            re.escape(notes.ONLY_QUOTES),
            "这里只显示文档原文。请问文档可能包含的内容，或在回答设置中让模型回答。",
        ),
        (re.escape(notes.REPEATS_ITSELF), "模型开始重复，所以回答到这里结束。"),
        (re.escape(notes.NOT_READY), "文档还在读取。请稍后再问。"),
        (re.escape(notes.NOT_SUPPORTED), "没有段落支持这个回答。"),
        (
            re.escape(notes.NOT_SAVED),
            "这个回答还没有保存：磁盘已满，或数据库被占用。它保留在内存里，会一直重试，直到保存成功。",
        ),
        (
            re.escape(notes.NOT_WRITTEN),
            "回答到这里结束，因为无法写入数据库：磁盘已满，或数据库被占用。",
        ),
        (
            r"The last answer of this conversation could not be saved yet, .*",
            "这个对话的上一个回答还没能保存，所以还不能继续。如果磁盘已满，请先腾出空间再问。",
        ),
        (re.escape(notes.INTERRUPTED), "回答还在写时 Pageturn 结束了。"),
        (
            r"(\d+) of (\d+) documents are ready; only they were searched\.",
            "{1} 个文档中有 {0} 个就绪，只搜索了这些。",
        ),
        (
            r"The model's context was full: the (\d+) oldest of the turns that it still read have "
            r"left it\. They stay readable here\.",
            "模型的上下文已满：它还在读的最早 {0} 轮已离开上下文，这里仍可阅读。",
        ),
        (
            r"The model's context had room for (\d+) of the (\d+) passages that it should have "
            r"read\.",
            "模型应读 {1} 个段落，上下文只容得下 {0} 个。",
        ),
        *(
            (
                rf"The computer slept for (\d+) {unit}s? while .*",
                f"回答期间电脑休眠了 {{0}} {chinese}。",
            )
            for unit, chinese in (("hour", "小时"), ("minute", "分钟"), ("second", "秒"))
        ),
        (
            r"(.*) belongs to the shared library\. .*",
            "{0} 属于共享文库，只有运行服务器的人能用命令行更改它。",
        ),
        (r"There is no conversation .*", "没有这个对话。"),
        (r"There is no turn .*", "这个对话里没有这一轮。"),
        (
            r"This conversation is still answering\. Wait .*",
            "这个对话还在回答。请等它结束，或先停止它。",
        ),
        (
            r"There are no documents to answer from yet\. .*",
            "还没有可以用来回答的文档。请先添加，例如用页面上的按钮添加示例文库。",
        ),
        (r"The question is empty\. .*", "问题是空的。请输入您想知道的内容。"),
        (
            r"The question needs ([\d,]+) tokens, and there is room for ([\d,]+)\. .*",
            "问题需要 {0} 个词元，只有 {1} 个的空间。请缩短它，或把长文作为文档添加。",
        ),
        (r"The file is empty \(0 bytes\)\. .*", "文件是空的（0 字节）。请检查是否完整保存。"),
        (
            r"Files of type (\S+) are not supported\. .*",
            "不支持 {0} 文件。支持 Markdown、纯文本、HTML、PDF、Word、Excel、EPUB 和 CSV。",
        ),
        (
            r"The file is (.*), which is not supported\. .*",
            "不支持这种文件（{0}）。支持 Markdown、纯文本、HTML、PDF、Word、Excel、EPUB 和 CSV。",
        ),
        (
            r"The (?:Word document|Excel workbook|EPUB book) is protected by a password\. .*",
            "文件受密码保护。请另存一份没有密码的再添加。",
        ),
        (
            r"The (?:Word document|Excel workbook|EPUB book) is damaged .*",
            "文件已损坏，无法打开。请重新获取，或用原来的程序打开、另存后再添加。",
        ),
        (
            r"The PDF is protected by a password\. .*",
            "PDF 受密码保护。请另存一份没有密码的再添加。",
        ),
        (
            r"The PDF has ([\d,]+) pages? and no text layer: it is a form .*",
            "PDF 有 {0} 页，没有文字层：是只有 Adobe 软件能显示的表单（XFA），请在其中打印为 PDF。",
        ),
        (
            r"The PDF has ([\d,]+) pages? and no text layer: ([\d,]+) pages? (?:is|are) .*",
            "PDF 有 {0} 页，没有文字层，{1} 页是扫描件。请安装 tesseract（OCR）后重新添加。",
        ),
        (
            r"The PDF has ([\d,]+) pages? and no text layer.*",
            "PDF 有 {0} 页，没有文字层，没有可以索引的内容。",
        ),
        (
            r"The text could not be read reliably: .*",
            "无法可靠地读出文字：PDF 的字体没有说明字符。请安装 tesseract（OCR）后重新添加。",
        ),
        *(
            (rf"{english} ([\d,]+) of ([\d,]+) pages?{rest}: (.*)\.", chinese)
            for english, rest, chinese in (
                ("No text on", "", "{1} 页中有 {0} 页没有文字：{2}。"),
                (
                    "Only pictures, probably scans, on",
                    "; [^:]*",
                    "{1} 页中有 {0} 页只有图片，可能是扫描件，安装 tesseract（OCR）后可读：{2}。",
                ),
                (
                    r"Read by text recognition \(OCR\), which makes mistakes, on",
                    "",
                    "{1} 页中有 {0} 页由文字识别（OCR）读出，可能有错：{2}。",
                ),
                (
                    "The text could not be read reliably and was left out on",
                    "",
                    "{1} 页中有 {0} 页的文字无法可靠读出，没有收录：{2}。",
                ),
                (
                    "The text could not be read reliably on",
                    "",
                    "{1} 页中有 {0} 页的文字可能读得不准：{2}。",
                ),
                (
                    "Same text as an earlier page, under which it is found, on",
                    "",
                    "{1} 页中有 {0} 页与前面的页相同，按前面的页检索：{2}。",
                ),
                ("The file is damaged on", ", [^:]*", "{1} 页中有 {0} 页已损坏，没有读取：{2}。"),
            )
        ),
        (
            r"Only the first ([\d,]+) of ([\d,]+) pages were read: .*",
            "{1} 页中只读了前 {0} 页：文件太大或读取太慢。请拆分后添加各部分。",
        ),
    )
]


# The folders of an absolute path; what they hold keeps its name.
_FOLDERS = re.compile(r"(?<![^\s('\"“])/(?:[^\s/]+/)+(?=[^\s/])")


def told(message: str, words: Words) -> str:
    """A message of the services for the page: translated, and without the server's folders."""
    return translated(_FOLDERS.sub("", message), words)


def translated(sentence: str, words: Words) -> str:
    """The sentence in the page's language; one that is not known stays as it is."""
    if words.language == "zh":
        for pattern, chinese in _CHINESE:
            if found := pattern.fullmatch(sentence):
                return chinese.format(*(translated(part, words) for part in found.groups()))
    return sentence
