"""What kind of question one is, as far as it decides how it is answered.

Talk is no question to the documents; a question about the conversation is answered from that; one
about a whole document should say how much of it was read. Patterns rather than a model: they cost
nothing, and what they miss is answered like any other question.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

_MOST_TALK = 60
Kind: TypeAlias = Literal["question", "talk", "conversation", "summary", "counting"]

_TALK = re.compile(
    r"""(?:(?:hello|hi|hey|hiya|howdy|greetings|good\s(?:morning|afternoon|evening|night|day)
    |how\sare\syou(?:\sdoing)?|how(?:['’]s|\sis)\sit\sgoing|what['’]s\sup|nice\sto\smeet\syou
    |thanks?(?:\syou)?(?:\s(?:a\slot|so\smuch|very\smuch|again))?|thx|cheers|much\sappreciated
    |(?:good)?\s?bye(?:[\s-]bye)?|see\syou(?:\slater)?|ok(?:ay)?|great|cool|perfect|nice|awesome|got\sit
    |i\ssee|wow|sure|alright|sorry|well\sdone|good\s(?:job|answer)|that(?:['’]s|\sis|\swas)
    \s(?:great|good|helpful|perfect|all|nice|clear)|who\sare\syou|what\scan\syou\sdo
    |what(?:['’]s|\sis)\syour\sname|are\syou\s(?:there|a\sbot|an?\sai|human))
    (?:\s(?:there|all|everyone|pageturn|today|then|now|mate|friend))?[\s!.,?:)]*)+
    |(?:(?:你好|您好|大家好|嗨|哈喽|喂|在吗|早上好|上午好|下午好|晚上好|早安|晚安|早|谢谢|多谢|感谢|谢了
    |再见|拜拜|好的|好|明白了?|知道了|懂了|太好了|很好|不错|没问题|辛苦了|对不起|抱歉|你是谁|你叫什么
    |你叫什么名字|你能做什么|你会做什么|最近怎么样)(?:你|您|了|啊|呀|吗|哦|呢|大家)*[\s！。，？!,.?～~]*)+""",
    re.IGNORECASE | re.VERBOSE,
)
_CONVERSATION = re.compile(
    r"""\b(?:(?:did|have|do)\s(?:i|you|we)\s(?:just\s|already\s)?(?:ask|asked|say|said|tell|told|mean
    |meant|mention|mentioned|talk|talked|discuss|discussed|write|wrote|answer|answered)
    (?:\s(?:me|you|it|that|this|about|before|just\snow|earlier|so\sfar|first|last))*\s*[?.!]*$
    |(?:i|you|we)\sjust\s(?:asked|said|told|wrote|mentioned|answered)
    |(?:my|your|the)\s(?:(?:previous|last|first|earlier)\s)(?:question|answer|message|reply|response)
    |(?:our|this)\s(?:conversation|chat)\b
    |(?:your|that)\s(?:answer|reply|response)\b)
    |^(?:(?:please|can\syou|could\syou|now|and)[\s,]+)*
    (?:(?:say|put|write|explain|repeat|rephrase|reword|shorten|simplify|translate|summari[sz]e|answer)
    \s(?:that|this|it)(?:\s(?:again|shorter|simpler|differently|in\s.{2,40}|more\s\w+|once\smore|to\s\w+
    |as\s.{2,30}|please|briefly|for\sme))*
    |(?:be\s)?(?:shorter|briefer|simpler|more\s(?:briefly|simply|concise)|longer|more\sdetail(?:s|ed)?)
    |(?:once\smore|again|repeat|come\sagain|go\son|continue|tell\sme\smore|rephrase)
    |in\s(?:english|chinese|german|french|spanish|other\swords|short|one\ssentence|simpler\swords))
    (?:[\s,]*please)?\s*[?.!]*$
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
    |总结|概括|概述|摘要|归纳|主要(?:内容|观点|讲)|大意|(?:文档|文件|文章|这本书|这篇)(?:主要)?(?:讲|说)(?:了|的)?(?:是)?什么""",
    re.IGNORECASE | re.VERBOSE,
)
_COUNTING = re.compile(
    r"""\b(?:how\smany|how\soften|(?:list|name|give|show|enumerate|find|tell)\s(?:me\s)?(?:all|every|each)
    |what\s(?:are\s)?all|all\s(?:of\s)?the|which\sof\sthe|every\s\w+\sthat|in\stotal|number\sof\stimes)\b
    |多少(?:个|种|次|处|篇|章|页|条|项|位|人)|几(?:个|种|次|处|篇|章|条|项|位)|列出|所有|全部|一共|总共|哪些|每(?:一)?个""",
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
