"""How long a long conversation's turn takes beside the model's own work, in the shape of the 0.8B model. Prints what it saw."""
import json
import re
import statistics
import time
import urllib.request

import pytest

from test_prefix_cache import Agent, call, result, user

RAM_MS, DISK_MS, TURN_MS = 5, 150, 20
RESTORE_TOKENS, TURN_TOKENS = 16384, 20000
PARTS = ("prepare", "queue", "restore", "rest")


@pytest.fixture(scope="module")
def model(make_model):
    return make_model("0.8b", "nvfp4")


class Talk:
    """One conversation; a turn adds a call and its result."""

    def __init__(self):
        self.agent = None
        self.messages = [{"role": "system", "content": "You are careful and brief. " * 200}, user("What is in the files?")]
        self.n_tokens = 0

    def turn(self, n_lines):
        """The answer, the time it took in ms, and the time without the model's passes, in parts."""
        lines = "".join(f"line {i} of a file: {i * i}\n" for i in range(n_lines))
        self.messages += [call(f"cat {len(self.messages)}.txt", "I look."), result(lines)]
        server = self.agent.server
        body = json.dumps(self.agent.body(self.messages, [], False, max_tokens=4)).encode()
        request = urllib.request.Request(server.url + "/v1/chat/completions", body, {"Content-Type": "application/json"})
        n_logged = len(self.prepared())
        begin = time.perf_counter()
        with urllib.request.urlopen(request, timeout=900) as reply:
            answer = json.loads(reply.read())
        whole = (time.perf_counter() - begin) * 1000
        timings = answer["timings"]
        self.n_tokens = answer["usage"]["prompt_tokens"]
        while len(self.prepared()) == n_logged:  # the line comes after the answer
            assert time.perf_counter() - begin < 900, "the request is not in the log"
            time.sleep(0.01)
        parts = {"prepare": self.prepared()[-1], "queue": timings["queue_ms"], "restore": timings["restore_ms"]}
        parts["rest"] = whole - timings["prompt_ms"] - timings["predicted_ms"] - sum(parts.values())
        return timings, parts

    def prepared(self):
        return [float(ms) for ms in re.findall(r" prepare_ms=([\d.]+)", self.agent.server.log())]

    def grow_to(self, n_tokens):
        while self.n_tokens < n_tokens:
            self.turn(60)


@pytest.mark.full
def test_a_long_conversation_costs_little_beside_the_model(start_server, model, tmp_path):
    def start():
        return start_server("--ctx", "32768", "--parallel", "1", "--cache-ram", "2G", "--cache-dir", str(tmp_path / "conversations"),
                            model=model)

    talk = Talk()
    server = start()
    talk.agent = Agent(server)
    talk.grow_to(RESTORE_TOKENS)
    ram = []
    for _ in range(5):
        timings, _ = talk.turn(3)
        assert timings["cache_source"] == "ram"
        ram.append(timings["restore_ms"])
    disk = []
    for _ in range(3):
        assert server.stop() == 0
        server = start()
        talk.agent = Agent(server)
        timings, _ = talk.turn(3)
        assert timings["cache_source"] == "disk" and timings["cache_n"] >= RESTORE_TOKENS
        disk.append(timings["restore_ms"])
    talk.grow_to(TURN_TOKENS)
    turns = [talk.turn(3)[1] for _ in range(7)]
    outside = [sum(parts.values()) for parts in turns]
    assert server.stop() == 0
    print(f"restored from memory in {ram} ms, from disk in {disk} ms; a turn at {talk.n_tokens} tokens outside the model's passes:",
          " ".join(f"{t:.1f}" for t in outside), "ms, in the middle",
          " ".join(f"{name} {statistics.median(parts[name] for parts in turns):.2f}" for name in PARTS))
    assert statistics.median(ram) <= RAM_MS
    assert statistics.median(disk) <= DISK_MS
    assert statistics.median(outside) <= TURN_MS
