"""The rules of the supported families' chat templates, written down for the tests.

Each has what makes the format: the control tokens, where the system text goes and which one stands
there by default, what is trimmed, what happens to thinking. Tools, images and the longer default
system texts are left out; one short sentence stands for the latter.
"""

# Headers around roles, messages trimmed; the date stands in a system message that is always there.
LLAMA_3_1 = """
{{- bos_token }}
{%- if date_string is not defined %}{% set date_string = '26 Jul 2024' %}{% endif %}
{%- macro turn(role, text) %}<|start_header_id|>{{ role }}<|end_header_id|>

{{ text | trim }}<|eot_id|>{% endmacro %}
{%- set given = messages[0].content | trim if messages[0].role == 'system' else '' %}
{{- '<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n' }}
{{- 'Today Date: ' + date_string + '\n\n' + given + '<|eot_id|>' }}
{%- for m in messages if m.role != 'system' %}{{ turn(m.role, m.content) }}{% endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}"""
# The same with the day's date.
LLAMA_3_2 = LLAMA_3_1.replace("'26 Jul 2024'", "strftime_now('%d %b %Y')")

# Every turn alike; a default system prompt where none is given.
QWEN_2_5 = """
{%- if messages[0].role != 'system' %}
    {{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}
{%- endif %}
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
SMOLLM_2 = QWEN_2_5
# Thinking is dropped from every answer before the last question, and put before the last answer.
QWEN_3 = """
{%- set ns = namespace(last=0) %}
{%- for m in messages if m.role == 'user' %}{% set ns.last = loop.index %}{% endfor %}
{%- set ns.asked = 0 %}
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\n' }}
    {%- if m.role == 'user' %}{% set ns.asked = ns.asked + 1 %}{% endif %}
    {%- if m.role == 'assistant' %}
        {%- set parts = m.content.split('</think>') %}
        {%- set thought = parts[0].split('<think>')[-1] if parts | length > 1 else '' %}
        {%- set said = parts[-1].lstrip('\n') if parts | length > 1 else m.content %}
        {%- if ns.asked == ns.last and loop.last %}
            {{- '<think>\n' + thought.strip('\n') + '\n</think>\n\n' + said.lstrip('\n') }}
        {%- else %}{{ said }}{% endif %}
    {%- else %}{{ m.content }}{% endif %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
# A switch in the system text says whether to think; the custom part of it is trimmed at its end.
SMOLLM_3 = """
{%- set given = messages[0].content if messages[0].role == 'system' else '' %}
{%- set mode = '/no_think' if '/no_think' in given else '/think' %}
{%- set own = given.replace('/no_think', '').replace('/think', '').rstrip() %}
{%- set quiet = '' if mode == '/think' else '<think>\n\n</think>\n' %}
{{- '<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\n' }}
{{- 'Reasoning Mode: ' + mode + '\n\n## Custom Instructions\n\n' }}
{{- (own or 'You are a helpful assistant.') + '\n\n<|im_end|>\n' }}
{%- for m in messages if m.role != 'system' %}
    {{- '<|im_start|>' + m.role + '\n' }}
    {{- quiet + m.content.lstrip('\n') if m.role == 'assistant' else m.content }}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' + quiet }}{% endif %}"""

_ALTERNATING = """
{%- for m in messages if m.role != 'system' %}
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Roles must alternate.') }}
    {%- endif %}
{%- endfor %}"""
# The system prompt opens the newest instruction, wherever that is; a space before each text.
MISTRAL_V0_3 = (
    _ALTERNATING
    + """
{{- bos_token }}
{%- set given = messages[0].content + '\n\n' if messages[0].role == 'system' else '' %}
{%- for m in messages if m.role != 'system' %}
    {%- if m.role == 'user' %}
        {{- '[INST] ' + (given if loop.last else '') + m.content + '[/INST]' }}
    {%- else %}{{ ' ' + m.content + eos_token }}{% endif %}
{%- endfor %}"""
)
# Tokens of its own around the system prompt; a default one where none is given.
MISTRAL_V7 = (
    _ALTERNATING
    + """
{{- bos_token + '[SYSTEM_PROMPT]' }}
{{- messages[0].content if messages[0].role == 'system' else 'You are a helpful assistant.' }}
{{- '[/SYSTEM_PROMPT]' }}
{%- for m in messages if m.role != 'system' %}
    {{- '[INST]' + m.content + '[/INST]' if m.role == 'user' else m.content + eos_token }}
{%- endfor %}"""
)

_GEMMA_TURNS = (
    _ALTERNATING
    + """
{%- for m in messages if m.role != 'system' %}
    {{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}
    {{- given if loop.first }}{{ m.content | trim }}{{ '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"""
)
# Refuses a system prompt.
GEMMA_2 = (
    """
{{- bos_token }}{% set given = '' %}
{%- if messages[0].role == 'system' %}{{ raise_exception('No system role.') }}{% endif %}"""
    + _GEMMA_TURNS
)
# Writes it, untrimmed, before the first message.
GEMMA_3 = (
    """
{{- bos_token }}
{%- set given = messages[0].content + '\n\n' if messages[0].role == 'system' else '' %}"""
    + _GEMMA_TURNS
)

# Roles are control tokens; an empty system text is left out; a token ends a whole conversation.
PHI_3_5 = """
{%- for m in messages if m.content or m.role != 'system' %}
    {{- '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}
{%- endfor %}
{{- '<|assistant|>\n' if add_generation_prompt else eos_token }}"""
PHI_4 = """
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '<|im_sep|>' + m.content + '<|im_end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}"""
PHI_4_MINI = """
{%- for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}
{{- '<|assistant|>' if add_generation_prompt else eos_token }}"""

# A default system prompt with the day's date.
GRANITE_3_3 = """
{%- macro turn(role, text) %}
    {{- '<|start_of_role|>' + role + '<|end_of_role|>' + text + '<|end_of_text|>\n' }}
{%- endmacro %}
{%- if messages[0].role != 'system' %}
    {{- turn('system', "Knowledge Cutoff Date: April 2024. Today's Date: "
        + strftime_now('%B %d, %Y') + '. You are a helpful assistant.') }}
{%- endif %}
{%- for m in messages %}{{ turn(m.role, m.content) }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|start_of_role|>assistant<|end_of_role|>' }}{% endif %}"""

# No marks around the system text; the prompt opens the thinking, and older answers have none.
DEEPSEEK_R1 = """
{{- bos_token }}
{%- for m in messages %}
    {%- if m.role == 'user' %}{{ '<｜User｜>' + m.content }}
    {%- elif m.role == 'system' %}{{ m.content }}
    {%- else %}
        {{- '<｜Assistant｜>' + m.content.split('</think>')[-1] + '<｜end▁of▁sentence｜>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<｜Assistant｜><think>\n' }}{% endif %}"""

TEMPLATES = {
    "llama-3.1": LLAMA_3_1,
    "llama-3.2": LLAMA_3_2,
    "qwen-2.5": QWEN_2_5,
    "qwen-3": QWEN_3,
    "mistral-v0.3": MISTRAL_V0_3,
    "mistral-v7": MISTRAL_V7,
    "smollm-2": SMOLLM_2,
    "smollm-3": SMOLLM_3,
    "gemma-2": GEMMA_2,
    "gemma-3": GEMMA_3,
    "phi-3.5": PHI_3_5,
    "phi-4": PHI_4,
    "phi-4-mini": PHI_4_MINI,
    "granite-3.3": GRANITE_3_3,
    "deepseek-r1": DEEPSEEK_R1,
}
CONTROL_TOKENS = (
    "<s>", "</s>", "<think>", "</think>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
    "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "<start_of_turn>", "<end_of_turn>",
    "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|im_sep|>", "<|start_of_role|>",
    "<|end_of_role|>", "<|end_of_text|>", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>",
)  # fmt: skip
