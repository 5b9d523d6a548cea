"""Conversations that outlive the server: killed, restarted, with a damaged folder, without one."""
import json
import time

import pytest

from test_prefix_cache import SYSTEM, TOOL, USER, Agent, call, result, tool_loop, user

FLAGS = ("--ctx", "8192", "--cache-ram", "100M")
QUESTIONS = [[SYSTEM, user("What is in the files?")], [SYSTEM, user("Where is the bug?")]]


def wait_until_written(server, seconds=20):
    """Until the engine was idle long enough and the writer has finished."""
    deadline = time.monotonic() + seconds
    last = -1
    while True:
        pending, done = server.metric("disk_writes_pending"), server.metric("disk_writes_total")
        if pending == 0 and done > 0 and done == last:
            return
        last = done
        assert time.monotonic() < deadline, "the conversations were not written"
        time.sleep(2.5)


def what_it_says(agent, messages):
    """Tokens computed, source, and everything that must not depend on where the prompt came from."""
    computed = agent.prefilled(messages, max_tokens=16, logprobs=True, top_logprobs=4)
    return computed, agent.answer["timings"]["cache_source"], agent.answer["choices"]


class DiskAgent(Agent):
    def prefilled(self, messages, tools=(), thinking=False, **fields):
        self.answer = self.post("/v1/chat/completions", self.body(messages, list(tools), thinking, **fields))
        usage = self.answer["usage"]
        return usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]


def test_a_killed_server_goes_on_where_it_was(start_server, tmp_path):
    """As it came, restored from disk, warm and cold: the same text and log probabilities in every turn of two conversations."""
    folder = tmp_path / "conversations"
    server = start_server(*FLAGS, "--cache-dir", str(folder))
    histories = [[question, *tool_loop(None, question, 3)] for question in QUESTIONS]
    agent = DiskAgent(server)
    expected = [[what_it_says(agent, messages)[2] for messages in history] for history in histories]
    wait_until_written(server)
    server.kill()

    server = start_server(*FLAGS, "--cache-dir", str(folder))
    agent = DiskAgent(server)
    for number, history in enumerate(histories):
        for turn, messages in enumerate(history):
            now = len(agent.ids(messages, ()))
            computed, source, restored = what_it_says(agent, messages)
            # The boundaries of the question and of the newest turn were written, those between had no use any more.
            if messages in (history[0], history[-1]):
                assert (computed, source) == (TOOL if turn else USER, "disk")
            else:
                assert 0 < computed < now // 2 and source == "ram"
            computed, source, warm = what_it_says(agent, messages)
            assert (computed, source) == (0, "ram")
            computed, source, cold = what_it_says(DiskAgent(server, f"cold{number} {turn}"), messages)
            assert (computed, source) == (now, "none")
            assert restored == warm == cold == expected[number][turn]
        start = len(agent.ids(history[0], ()))
        steered = history[-1] + [{"role": "assistant", "content": "No."}, user("Why?")]
        computed, source, _ = what_it_says(agent, steered)
        assert computed == len(agent.ids(steered, ())) - (start - USER)
    assert server.metric("disk_reads_total") >= 2
    assert server.stop() == 0


@pytest.mark.full
def test_what_was_evicted_and_computed_again_is_the_same(start_server):
    server = start_server("--ctx", "2048", "--cache-ram", "6M", "--parallel", "1")
    histories = [[question, *tool_loop(None, question, 3)] for question in QUESTIONS]
    agent = DiskAgent(server)
    for turn in range(len(histories[0])):
        for number, history in enumerate(histories):
            first = what_it_says(agent, history[turn])[2]
            _, source, warm = what_it_says(agent, history[turn])
            assert (source, warm) == ("ram", first)
            for i in range(3):
                agent.prefilled([{"role": "system", "content": f"{i} of {number} after {turn}. " + "You are quick. " * 250}, user("Go.")])
            assert what_it_says(agent, history[turn]) == (len(agent.ids(history[turn], ())), "none", first)
    assert server.metric("cache_evictions_total") > 0
    assert server.stop() == 0


def test_a_server_that_is_asked_to_stop_writes_first(start_server, tmp_path):
    folder = tmp_path / "conversations"
    server = start_server(*FLAGS, "--cache-dir", str(folder))
    messages = [SYSTEM, user("Hello")]
    n = DiskAgent(server).prefilled(messages)
    assert server.stop() == 0
    server = start_server(*FLAGS, "--cache-dir", str(folder))
    assert DiskAgent(server).prefilled(messages) == USER < n
    server.stop()


def test_evicted_conversations_come_back_from_disk(start_server, tmp_path):
    """Memory for a few conversations, ten in turn: each comes back from disk, with the words it had."""
    server = start_server("--ctx", "2048", "--cache-ram", "6M", "--cache-dir", str(tmp_path / "c"), "--parallel", "1")
    agent = DiskAgent(server)
    talks = [[{"role": "system", "content": f"Number {i}. " + "You are careful. " * 150}, user("Go on.")] for i in range(10)]
    first = [what_it_says(agent, talk) for talk in talks]
    wait_until_written(server)
    assert server.metric("cache_evictions_total") > 0
    sources = set()
    for talk, (whole, _, choices) in zip(talks, first):
        computed, source, again = what_it_says(agent, talk)
        assert again == choices
        sources.add(source)
    assert "disk" in sources
    assert server.stop() == 0


@pytest.mark.parametrize("damage", ["torn", "flipped", "garbage", "page"])
def test_damaged_files_are_set_aside_and_do_no_harm(start_server, tmp_path, damage):
    folder = tmp_path / "conversations"
    server = start_server(*FLAGS, "--cache-dir", str(folder))
    messages = [SYSTEM, user("Hello")]
    _, _, expected = what_it_says(DiskAgent(server), messages)
    assert server.stop() == 0
    for path in folder.glob("*.pages" if damage == "page" else "*.state"):
        content = bytearray(path.read_bytes())
        if damage == "torn":
            content = content[:len(content) // 2]
        elif damage in ("flipped", "page"):
            content[len(content) // 2] ^= 0x10
        else:
            content = bytearray(b"not a state file")
        path.write_bytes(content)
    server = start_server(*FLAGS, "--cache-dir", str(folder))
    _, source, answer = what_it_says(DiskAgent(server), messages)
    assert source == "none" and answer == expected
    assert "warning" in server.log()
    assert list((folder / "damaged").glob("*.state")), "for whoever wants to know why"
    assert server.stop() == 0


def test_a_folder_that_cannot_be_used_is_one_warning(start_server, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    server = start_server(*FLAGS, "--cache-dir", str(blocked))
    assert DiskAgent(server).prefilled([SYSTEM, user("Hello")]) > 0
    assert server.log().count("conversations are not kept on disk") == 1
    assert json.loads(server.get("/props"))["cache"]["disk"] is None
    assert server.stop() == 0


def test_another_templates_conversations_are_not_found(start_server, tmp_path, source_dir):
    folder = tmp_path / "conversations"
    server = start_server(*FLAGS, "--cache-dir", str(folder))
    messages = [SYSTEM, user("Hello")]
    n = DiskAgent(server).prefilled(messages)
    server.stop()
    other = source_dir / "tests" / "golden" / "text" / "templates" / "qwen3.5.jinja"
    server = start_server(*FLAGS, "--cache-dir", str(folder), "--chat-template", str(other))
    assert DiskAgent(server).prefilled(messages) == n
    assert "not usable here and ignored: chat template" in server.log()
    server.stop()


@pytest.mark.full
def test_a_hundred_turns_are_written_once(start_server, tmp_path):
    """Written after every turn: pages once, and for each turn its state with the page that was not full."""
    folder = tmp_path / "conversations"
    server = start_server("--ctx", "65536", "--cache-ram", "500M", "--parallel", "1", "--cache-dir", str(folder))
    state_bytes = int(json.loads(server.get("/props"))["details"]["state_bytes"])
    agent = DiskAgent(server)
    messages = [SYSTEM, user("What is in the files?")]
    for turn in range(100):
        before = server.metric("disk_writes_total")
        n_tokens = len(agent.ids(messages, ()))
        agent.prefilled(messages)
        deadline = time.monotonic() + 60
        while server.metric("disk_writes_total") == before or server.metric("disk_writes_pending") > 0:
            assert time.monotonic() < deadline, f"turn {turn} was not written"
            time.sleep(0.1)
        messages = messages + [call(f"cat {turn}.txt", "I look."), result(f"line {turn} of a file\n" * (turn % 60 + 20))]
    n_writes = server.metric("disk_writes_total")
    pages, rest = server.metric("disk_page_bytes_written_total"), server.metric("disk_state_bytes_written_total")
    final = sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
    assert server.stop() == 0
    written = pages + rest
    print(f"{n_tokens} tokens, {n_writes:.0f} writes: {pages / 2**20:.1f} MiB of pages and {rest / 2**20:.1f} MiB beside, of which"
          f" states {n_writes * state_bytes / 2**20:.1f}; the folder holds {final / 2**20:.1f} MiB:"
          f" {(written - n_writes * state_bytes) / final:.3f} of that")
    assert n_writes >= 100
    assert written <= 1.3 * final + n_writes * state_bytes
