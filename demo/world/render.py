"""Text of conversations as the Qwen3.6 chat template renders it, in segments that say what the model has to produce.

The template itself (chat_template.jinja) is the reference: tests compare. Segments are made here because a training sequence marks
every reply of a conversation, which rendering whole conversations cannot tell.
"""

import json
from dataclasses import dataclass

END = "<|im_end|>"
NO_THINKING = "<think>\n\n</think>\n\n"
TOOLS_HEAD = "# Tools\n\nYou have access to the following functions:\n\n<tools>"
TOOLS_TAIL = (
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n<tool_call>\n"
    "<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n<parameter=example_parameter_2>\n"
    "This is the value for the second parameter\nthat can span\nmultiple lines\n</parameter>\n</function>\n</tool_call>\n\n"
    "<IMPORTANT>\nReminder:\n- Function calls MUST follow the specified format: an inner <function=...></function> block must be "
    "nested within <tool_call></tool_call> XML tags\n- Required parameters MUST be specified\n- You may provide optional reasoning "
    "for your function call in natural language BEFORE the function call, but NOT after\n- If there is no function call available, "
    "answer the question like normal with your current knowledge and do not tell the user about function calls\n</IMPORTANT>"
)
SHORT_TOOLS_TAIL = "\n</tools>"


@dataclass(frozen=True)
class Segment:
    text: str
    is_reply: bool


def system_text(tools: list[dict], system: str, is_short: bool = False) -> str:
    """The system message; `is_short` leaves the constant instructions out (early training only, never what a server sees)."""
    listed = "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in tools)
    tail = SHORT_TOOLS_TAIL if is_short else TOOLS_TAIL
    return f"<|im_start|>system\n{TOOLS_HEAD}{listed}{tail}" + (f"\n\n{system}" if system else "") + f"{END}\n"


def calls_text(calls: list[dict]) -> str:
    """Tool calls, from (name, arguments) as dictionaries."""
    parts: list[str] = []
    for call in calls:
        text = f"<tool_call>\n<function={call['name']}>\n"
        for name, value in call["arguments"].items():
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            text += f"<parameter={name}>\n{shown}\n</parameter>\n"
        parts.append(text + "</function>\n</tool_call>")
    return "\n".join(parts)


def user_text(content: str) -> str:
    return f"<|im_start|>user\n{content.strip()}{END}\n"


def results_text(results: list[str]) -> str:
    return "<|im_start|>user" + "".join(f"\n<tool_response>\n{text.strip()}\n</tool_response>" for text in results) + f"{END}\n"


def reply_segments(reasoning: str | None, body: str) -> list[Segment]:
    """An assistant turn: reasoning None = the empty block a server prefills with thinking off."""
    head = "<|im_start|>assistant\n"
    if reasoning is None:
        return [Segment(head + NO_THINKING, False), Segment(body + END, True), Segment("\n", False)]
    return [Segment(head + "<think>\n", False), Segment(f"{reasoning}\n</think>\n\n{body}{END}", True), Segment("\n", False)]


def turn_body(commands: list[str]) -> str:
    return calls_text([{"name": "bash", "arguments": {"command": command}} for command in commands])
