"""What kind of question one is, as far as it decides how it is answered.

Talk is no question to the documents; a question about the conversation is answered from that; one
about a whole document should say how much of it was read. Patterns rather than a model: they cost
nothing, and what they miss is answered like any other question.

None takes longer than in proportion to the question, whatever that is: what repeats is possessive
(``*+``, ``++``) or atomic (``(?>...)``) and is never tried a second way, and what stands far apart
("how many ... are mentioned") is looked for from the first of its beginnings in the line only.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

_MOST_TALK = 60
Kind: TypeAlias = Literal["question", "talk", "conversation", "summary", "counting"]

_TALK = re.compile(
    r"""(?>(?:hello|hiya|hi|hey|howdy|greetings|good\s(?:morning|afternoon|evening|night|day)
    |how\sare\syou(?:\sdoing)?|how(?:['’]s|\sis)\sit\sgoing|what['’]s\sup|nice\sto\smeet\syou
    |thanks?(?:\syou)?(?:\s(?:a\slot|so\smuch|very\smuch|again))?|thx|cheers|much\sappreciated
    |(?:good)?\s?bye(?:[\s-]bye)?|see\syou(?:\slater)?|ok(?:ay)?|great|cool|perfect|nice|awesome|got\sit
    |i\ssee|wow|sure|alright|sorry|well\sdone|good\s(?:job|answer)|that(?:['’]s|\sis|\swas)
    \s(?:great|good|helpful|perfect|all|nice|clear)|who\sare\syou|what\scan\syou\sdo
    |what(?:['’]s|\sis)\syour\sname|are\syou\s(?:there|a\sbot|an?\sai|human))
    (?:\s(?:there|all|everyone|pageturn|today|then|now|mate|friend))?[\s!.,?:)]*)++
    |(?>(?:你好|您好|大家好|嗨|哈喽|喂|在吗|早上好|上午好|下午好|晚上好|早安|晚安|早|谢谢|多谢|感谢|谢了
    |再见|拜拜|好的|好|明白了?|知道了|懂了|太好了|很好|不错|没问题|辛苦了|对不起|抱歉|你是谁
    |你叫什么名字|你叫什么|你能做什么|你会做什么|最近怎么样)
    (?:[了啊呀吗哦呢]|大家(?!好)|[你您](?!好|是谁|叫什么|[能会]做什么))*[\s！。，？!,.?～~]*)++""",
    re.IGNORECASE | re.VERBOSE,
)
_CONVERSATION = re.compile(
    r"""\b(?:(?:did|have|do)\s(?:i|you|we)\s(?:just\s|already\s)?(?:ask|asked|say|said|tell|told|mean
    |meant|mention|mentioned|talk|talked|discuss|discussed|write|wrote|answer|answered)
    (?:\s(?:me|you|it|that|this|about|before|just\snow|earlier|so\sfar|first|last))*+\s*+[?.!]*+$
    |(?:i|you|we)\sjust\s(?:asked|said|told|wrote|mentioned|answered)
    |(?:my|your|the)\s(?:(?:previous|last|first|earlier)\s)(?:question|answer|message|reply|response)
    |(?:our|this)\s(?:conversation|chat)\b
    |(?:your|that)\s(?:answer|reply|response)\b)
    |^(?:(?:please|can\syou|could\syou|now|and)[\s,]++)*+
    (?:(?:say|put|write|explain|repeat|rephrase|reword|shorten|simplify|translate|summari[sz]e|answer)
    \s(?:that|this|it)(?:\s(?:again|shorter|simpler|differently|more\s\w++|once\smore|to\s\w++
    |please|briefly|for\sme))*+(?:\s(?:in|as)\s.{2,60}$)?
    |(?:be\s)?(?:shorter|briefer|simpler|more\s(?:briefly|simply|concise)|longer|more\sdetail(?:s|ed)?)
    |(?:once\smore|again|repeat|come\sagain|go\son|continue|tell\sme\smore|rephrase)
    |in\s(?:english|chinese|german|french|spanish|other\swords|short|one\ssentence|simpler\swords))
    (?:[\s,]*+please)?\s*+[?.!]*+$
    |(?:我|你|您|我们)?(?:刚才|刚刚|之前|上面|上一[个次条句轮]|前面)(?:都|又)?(?:我|你|您|我们)?
    (?:的)?(?:问|说|讲|聊|提|回答|问题|答案|话|内容)
    |^(?:请|麻烦|能不能|可以)?(?:你)?(?:再|重新|换)(?:说|讲|回答|解释|写)?(?:一)?(?:遍|次|下|种说法|句话)
    |(?:说|讲|写|回答|解释|概括)得?(?:再)?(?:简短|简单|短|详细|简洁|清楚)(?:一?[点些])
    |^(?:请)?(?:再)?(?:简短|简单|短|详细|简洁)一?[点些][！。？!.?]*$
    |^(?:请)?(?:继续|接着说|翻译成?.{1,6}|用(?:中文|英文|英语|一句话)(?:再)?(?:说|回答|解释|概括).{0,6})[。！？!.?]*$
    |(?:这次|我们的?|这个)(?:对话|聊天)""",
    re.IGNORECASE | re.VERBOSE,
)
_SUMMARY = re.compile(
    r"""\b(?:summari[sz]e|summary|overview|outline|gist|tl;?dr|key\spoints|main\s(?:points|ideas?|topics?)
    |what\s(?:is|are|does)\s(?:this|the|these)\s(?:whole\s|entire\s)?(?:documents?|files?|texts?|papers?
    |books?|articles?|reports?|pdf)\s(?:about|say|cover|contain))\b
    |(?m:^)(?>.*?\bfasse?\b).*?\bzusammen\b
    |\b(?:zusammenfass\w*|überblick|kernaussagen?)\b
    |总结|概括|概述|摘要|归纳|主要(?:内容|观点|讲)|大意|(?:文档|文件|文章|这本书|这篇)(?:主要)?(?:讲|说)(?:了|的)?(?:是)?什么""",
    re.IGNORECASE | re.VERBOSE,
)
# What a document is made of, or a library; and what calls a document as a whole.
_PART = (
    r"(?:documents?|files?|papers?|articles?|books?|chapters?|(?:sub)?sections?|paragraphs?"
    r"|headings?|footnotes?|appendi(?:x|ces)|items?|entries|mentions?|occurrences?)"
)
_DOCUMENT = (
    r"(?:the|this|these|my|our|your|all|whole)\s(?:\w+\s)?"
    r"(?:documents?|files?|texts?|papers?|books?|articles?|reports?|pdfs?|library|manuals?)"
)
_GERMAN_PART = (
    r"(?:Dokumente?|Dateien|Kapitel|Abschnitte?|Absätze|Artikel|Bücher|Einträge|Fußnoten)"
)
# A count that a sentence states ("how many tokens does a page hold") is found like any other fact.
# One that nobody has written down has to be counted: parts of documents, mentions, all of a kind.
_COUNTING = re.compile(
    rf"""\bhow\smany\s(?:(?!(?:of|an?|the|per|in|do|does|is|are|can)\b)\w+\s){{0,2}}{_PART}\b
    (?!\s(?:can|could|may|might|must|should|will)\b)
    |(?m:^)(?>.*?\bhow\s(?:many|often)\b).*?\b(?:mentioned|mentions?|cited|listed|described|discussed|referred\sto)\b
    |(?m:^)(?>.*?\bhow\s(?:many|often)\b).*?\bin\s{_DOCUMENT}\s*+\?*+$
    |(?m:^)(?>.*?\bhow\smany\b).*?\b(?:do|does)\s{_DOCUMENT}\s
    (?:have|contain|hold|include|mention|list|name|cite|describe|discuss|cover|give)\b
    |\bwhich\s(?:of\s(?:the|these|my|our)\s)?
    (?:documents|files|papers|articles|books|chapters|(?:sub)?sections|paragraphs)\b
    |(?:^|[.!?,;:]|\b(?:please|you|and|then|now))\s*
    (?:list|name|give|show|enumerate|find|tell|count)\s(?:me\s)?(?:all|every|each)\b
    |\bwhat\sare\sall\b
    |\bwie\sviele\s(?:\w+e\s)?{_GERMAN_PART}\b
    |(?m:^)(?>.*?\bwie\s(?:oft|viele)\b).*?\b(?:erwähnt|genannt|zitiert|aufgeführt)\b
    |(?m:^)(?>.*?\bwie\s(?:oft|viele)\b).*?
    \b(?:im|in\s(?:dem|den|diesem|diesen))\s(?:Dokument|Text|Buch|Bericht)\w*+\s*+\??$
    |\bwelche\s(?:der\s)?(?:Dokumente|Dateien|Kapitel|Abschnitte|Artikel|Bücher)\b
    |(?:^|\bbitte\s)(?:nenne?|liste?|zähle?|zeige?)\s(?:mir\s)?(?:alle|jede[ns]?|sämtliche)\b
    |(?:多少|几)[个篇份章节段条项处]?(?:文档|文件|文章|论文|章节|小节|段落|条目|脚注|附录)|(?:多少|几)[篇章节段处]
    |(?:提到|提及|出现|引用|列出|列举)(?:了|过)?(?:多少|几)[个次处种位项条]
    |(?:多少|几)[个次处种位项条].{{0,10}}(?:被提到|被提及|被引用)
    |(?:文档|文件|文章|论文|全文|书|报告|资料)(?:里|中|内|里面|当中)?(?:一共|总共|共)?(?:有|讲|说|介绍)(?:了)?(?:多少|几)
    |(?:哪些|哪几[个篇份章节])(?:文档|文件|文章|论文|章节|段落)
    |列出|列举|枚举|(?:所有|全部)的?.{{0,12}}(?:有哪些|是哪些|是什么)""",
    re.IGNORECASE | re.VERBOSE,
)


def kind_of(question: str, *, follows: bool) -> Kind:
    """``follows``: there are turns before it, which it may be about."""
    question = question.strip()
    if len(question) <= _MOST_TALK and _TALK.fullmatch(question):
        return "talk"
    if follows and _CONVERSATION.search(question):
        return "conversation"
    if _SUMMARY.search(question):
        return "summary"
    return "counting" if _COUNTING.search(question) else "question"
