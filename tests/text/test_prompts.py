"""Every prompt of the recorded workload, rendered by `espalier eval render`, against the hashes that transformers gave."""
import csv
import hashlib
import json
import subprocess

import pytest

TWO = {"psf__requests-1921", "pallets__flask-5014"}


def requests_of(path):
    """Yields (conversation, turn, messages, tools) as the benchmark client sends them, with arguments parsed."""
    conversation, history, tools = None, [], None
    for line in path.read_text(encoding="utf-8").rstrip("\n").split("\n"):
        row = json.loads(line)
        if row["conversation_id"] != conversation:
            conversation, tools = row["conversation_id"], row.get("tools")
            history = [{"role": "system", "content": row["system"]}]
        if row["role"] == "user":
            history.append({"role": "user", "content": row["content"]})
        elif row["role"] == "tool":
            history += [{"role": "tool", "tool_call_id": r["tool_call_id"], "content": r["content"]} for r in row["tool_results"]]
        else:
            calls = [{**c, "function": {**c["function"], "arguments": json.loads(c["function"]["arguments"])}} for c in row["tool_calls"]]
            history.append({"role": "assistant", "tool_calls": calls, "reasoning_content": row["reasoning_content"]})
            continue
        yield conversation, row["turn"], list(history), tools


def check(espalier_bin, source_dir, dataset, wanted):
    golden = source_dir / "tests/golden/text"
    with open(golden / "workload-prompts.csv", encoding="utf-8") as file:
        hashes = {(r["conversation_id"], int(r["turn"])): r["sha256"] for r in csv.DictReader(file) if wanted(r["conversation_id"])}
    command = [espalier_bin, "eval", "render", "--template", golden / "templates/qwen3.6.jinja"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for conversation, turn, messages, tools in requests_of(dataset):
            line = {"messages": messages, "tools": tools, "kwargs": {"enable_thinking": False, "add_generation_prompt": True}}
            process.stdin.write(json.dumps(line).encode() + b"\n")
            process.stdin.flush()
            rendered = json.loads(process.stdout.readline())["rendered"]
            assert hashlib.sha256(rendered.encode()).hexdigest() == hashes.pop((conversation, turn)), f"{conversation} turn {turn}"
        process.stdin.close()
    assert not hashes
    assert process.returncode == 0


def test_two_conversations(espalier_bin, source_dir):
    check(espalier_bin, source_dir, source_dir / "demo/data/agentic_two.jsonl", TWO.__contains__)


@pytest.mark.full
def test_whole_workload(espalier_bin, source_dir):
    check(espalier_bin, source_dir, source_dir / "tests/golden/workload/agentic_coding_2.5h.jsonl", lambda _: True)
