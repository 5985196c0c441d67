"""Chat templates of the families that people run, reduced to their rules and written for the tests.

Each renders what the family's own template renders for a system text (or none), questions and
answers. Tools, images and options that no conversation of ours sets are left out.
"""

_ALTERNATE = (
    "{% for m in messages %}{% if m.role != 'system' and (m.role == 'user') != "
    "((loop.index0 - (messages[0].role == 'system')) % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}"
)


def _chatml(before: str = "", content: str = "{{ m.content }}") -> str:
    """ChatML: a role and a text between two control tokens."""
    return (
        f"{before}{{% for m in messages %}}<|im_start|>{{{{ m.role }}}}\n{content}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )


def _default_system(text: str) -> str:
    """A system text of the template's own where the conversation has none."""
    return (
        "{% if messages[0].role != 'system' %}<|im_start|>system\n"
        + text
        + "<|im_end|>\n{% endif %}"
    )


# A system text in any case, with dates; headers around roles; messages are trimmed.
LLAMA_3 = (
    "{{ bos_token }}{% if not date_string is defined %}"
    "{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
    "Today Date: {{ date_string }}\n\n"
    "{% if messages[0].role == 'system' %}{{ messages[0].content | trim }}"
    "{% set messages = messages[1:] %}{% endif %}<|eot_id|>"
    "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
QWEN_2_5 = _chatml(
    _default_system("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.")
)
# Thinking is dropped from every answer before the last question, and put before the last answer.
QWEN_3 = (
    "{% set ns = namespace(last=0) %}{% for m in messages %}"
    "{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}{% set said = m.content.split('</think>')[-1] %}"
    "{% if loop.index0 > ns.last %}<think>\n\n</think>\n\n{% endif %}{{ said.lstrip('\n') }}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# The system text stands in the newest question, wherever the conversation is.
MISTRAL_V3 = (
    "{{ bos_token }}" + _ALTERNATE + "{% for m in messages %}{% if m.role == 'user' %}[INST] "
    "{% if loop.last and messages[0].role == 'system' %}{{ messages[0].content }}\n\n{% endif %}"
    "{{ m.content }}[/INST]{% elif m.role == 'assistant' %} {{ m.content | trim }}{{ eos_token }}"
    "{% endif %}{% endfor %}"
)
MISTRAL_V7 = (
    "{{ bos_token }}[SYSTEM_PROMPT]{% if messages[0].role == 'system' %}{{ messages[0].content }}"
    "{% else %}You are Mistral Small 3. The current date is {{ strftime_now('%Y-%m-%d') }}."
    "{% endif %}[/SYSTEM_PROMPT]" + _ALTERNATE + "{% for m in messages %}"
    "{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]"
    "{% elif m.role == 'assistant' %}{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
SMOLLM_2 = _chatml(
    _default_system("You are a helpful AI assistant named SmolLM, trained by Hugging Face")
)
# A system text in any case, with dates and a mode; without thinking, answers begin with an empty
# thought.
SMOLLM_3 = (
    "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\n"
    "Today Date: {{ strftime_now('%d %B %Y') }}\nReasoning Mode: /no_think\n\n"
    "## Custom Instructions\n\n{% if messages[0].role == 'system' %}"
    "{{ messages[0].content.rstrip() }}{% else %}You are a helpful AI assistant named SmolLM, "
    "trained by Hugging Face.{% endif %}\n\n<|im_end|>\n"
    "{% for m in messages %}{% if m.role == 'user' %}<|im_start|>user\n{{ m.content }}<|im_end|>\n"
    "{% elif m.role == 'assistant' %}<|im_start|>assistant\n<think>\n\n</think>\n"
    "{{ m.content.lstrip('\n') }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n\n</think>\n{% endif %}"
)
GEMMA_2 = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}" + _ALTERNATE + ""
    "{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
# The system text opens the first question.
GEMMA_3 = (
    "{{ bos_token }}{% set prefix = '' %}{% if messages[0].role == 'system' %}"
    "{% set prefix = messages[0].content + '\n\n' %}{% set messages = messages[1:] %}{% endif %}"
    "{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{% if loop.first %}{{ prefix }}{% endif %}{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
PHI_3_5 = (
    "{% for m in messages %}{% if m.role != 'system' or m.content %}<|{{ m.role }}|>\n"
    "{{ m.content }}<|end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}"
)
PHI_4 = (
    "{% for m in messages %}<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}<|im_end|>"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant<|im_sep|>{% endif %}"
)
PHI_4_MINI = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% else %}{{ eos_token }}{% endif %}"
)
GRANITE_3 = (
    "{% if messages[0].role == 'system' %}{% set text = messages[0].content %}"
    "{% set messages = messages[1:] %}{% else %}{% set text = 'Knowledge Cutoff Date: April 2024.\n"
    "Today\\'s Date: ' + strftime_now('%B %d, %Y') + '.\nYou are Granite, developed by IBM.' %}"
    "{% endif %}<|start_of_role|>system<|end_of_role|>{{ text }}<|end_of_text|>\n"
    "{% for m in messages %}<|start_of_role|>{{ m.role }}<|end_of_role|>{{ m.content }}"
    "<|end_of_text|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}"
)
# Thinking is opened by the prompt, and dropped from every answer.
DEEPSEEK_R1 = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}"
    "{% for m in messages %}{% if m.role == 'user' %}<｜User｜>{{ m.content }}"
    "{% elif m.role == 'assistant' %}<｜Assistant｜>{{ m.content.split('</think>')[-1] }}"
    "<｜end▁of▁sentence｜>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<｜Assistant｜><think>\n{% endif %}"
)

TEMPLATES = {
    "Llama 3": LLAMA_3,
    "Qwen 2.5": QWEN_2_5,
    "Qwen 3": QWEN_3,
    "Mistral v0.3": MISTRAL_V3,
    "Mistral v7": MISTRAL_V7,
    "SmolLM2": SMOLLM_2,
    "SmolLM3": SMOLLM_3,
    "Gemma 2": GEMMA_2,
    "Gemma 3": GEMMA_3,
    "Phi 3.5": PHI_3_5,
    "Phi 4": PHI_4,
    "Phi 4 mini": PHI_4_MINI,
    "Granite 3": GRANITE_3,
    "DeepSeek R1 distill": DEEPSEEK_R1,
}

CONTROL = (
    "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "[INST]", "[/INST]",
    "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "<s>", "</s>", "<think>", "</think>",
    "<start_of_turn>", "<end_of_turn>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>",
    "<|im_sep|>", "<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>",
    "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>",
)  # fmt: skip
"""Control tokens of all of them, beside those of ChatML."""

VARIABLES = {"bos_token": "<s>", "eos_token": "</s>"}
