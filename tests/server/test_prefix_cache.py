"""What a turn pays for: prefilled prompt tokens, exactly, in the ways that agents use a server. Qwen3.6's template, random weights.

The numbers follow from the template. With thinking off a prompt ends "<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n": after
"assistant\\n" a user message may follow without a think block (USER tokens from the end), after "<think>" a reply with reasoning
(TOOL tokens). A question's turn keeps one snapshot for both, the shallower one.
"""
import json
import threading
import urllib.request

import pytest

USER = 4
TOOL = 3

BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Runs a command in the project's folder and returns what it prints.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}
SYSTEM = {"role": "system", "content": "You are a careful assistant for a small project. " * 40}


def user(text):
    return {"role": "user", "content": text}


def call(command, reasoning=None):
    message = {"role": "assistant", "content": "", "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "bash", "arguments": json.dumps({"command": command})}}]}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    return message


def result(text):
    return {"role": "tool", "tool_call_id": "c", "content": text}


def common(a, b):
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


class Agent:
    """One client. Every request says how many prompt tokens were computed."""

    def __init__(self, server, salt=""):
        self.server = server
        self.salt = salt
        self.answer = None

    def post(self, path, body):
        request = urllib.request.Request(self.server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read())

    def body(self, messages, tools, thinking, **fields):
        body = {"messages": messages, "max_tokens": 6, "temperature": 0, "cache_salt": self.salt, **fields}
        if tools:
            body["tools"] = tools
        if thinking is not None:
            body["chat_template_kwargs"] = {"enable_thinking": thinking}
        return body

    def ids(self, messages, tools=(BASH,), thinking=False):
        prompt = self.post("/apply-template", self.body(messages, list(tools), thinking))["prompt"]
        return self.post("/tokenize", {"content": prompt, "parse_special": True})["tokens"]

    def prefilled(self, messages, tools=(BASH,), thinking=False, **fields):
        self.answer = self.post("/v1/chat/completions", self.body(messages, list(tools), thinking, **fields))
        usage = self.answer["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert self.answer["timings"]["cache_n"] == cached
        assert self.answer["timings"]["cache_source"] == ("ram" if cached else "none")
        return usage["prompt_tokens"] - cached


@pytest.fixture(scope="module")
def cache_server(start_server):
    return start_server("--ctx", "8192", "--cache-ram", "300M", "--log-level", "debug")


@pytest.fixture()
def agent(cache_server, request):
    """Each test has a cache of its own: nothing is found across salts."""
    return Agent(cache_server, request.node.name)


def tool_loop(agent, messages, turns, reasoning="Let me look."):
    """Asks after each tool result; yields the history of each request."""
    for turn in range(turns):
        messages = messages + [call(f"cat file{turn}.txt", reasoning), result(f"line {turn} of some file\n" * (3 + turn))]
        yield messages


@pytest.mark.parametrize("reasoning", ["Let me look.", None])
def test_plain_tool_loop(agent, reasoning):
    messages = [SYSTEM, user("What is in the files?")]
    before = agent.ids(messages)
    assert agent.prefilled(messages) == len(before)
    slack = USER
    for messages in tool_loop(agent, messages, 6, reasoning):
        now = agent.ids(messages)
        # The recorded reply is new to the server, whatever it answered itself. Without reasoning the whole prompt stays as it is.
        base = len(before) - (slack if reasoning else 0)
        assert agent.prefilled(messages) == len(now) - base
        assert len(now) - base <= len(now) - common(now, before) + 8
        before, slack = now, TOOL


def test_tool_loop_with_thinking(agent):
    messages = [SYSTEM, user("What is in the files?")]
    before = agent.ids(messages, thinking=True)
    assert agent.prefilled(messages, thinking=True) == len(before)
    for messages in tool_loop(agent, messages, 4):
        now = agent.ids(messages, thinking=True)
        assert common(now, before) == len(before)
        assert agent.prefilled(messages, thinking=True) == len(now) - len(before)
        before = now


def test_user_stops_the_reply_and_steers(cache_server, agent):
    question = [SYSTEM, user("What is in the files?")]
    start = len(agent.ids(question))
    agent.prefilled(question)
    messages = question
    for messages in tool_loop(agent, question, 2):
        agent.prefilled(messages)
    stream = cache_server.client().chat.completions.create(
        model="tiny", messages=messages, tools=[BASH], max_tokens=3000, temperature=0, stream=True,
        extra_body={"ignore_eos": True, "cache_salt": agent.salt})
    next(iter(stream))
    stream.close()
    steered = messages + [{"role": "assistant", "content": "I will now"}, user("Stop. Read only the first file.")]
    # The reasoning of the turns since the question is dropped: the prompt parts right after that question's "assistant\n".
    now = agent.ids(steered)
    assert common(now, agent.ids(messages)) == start - USER
    assert agent.prefilled(steered) == len(now) - (start - USER)


def test_new_user_message_after_ten_tool_turns(agent):
    question = [SYSTEM, user("What is in the files?")]
    start = len(agent.ids(question))
    agent.prefilled(question)
    messages = question
    for messages in tool_loop(agent, question, 10):
        agent.prefilled(messages)
    last = agent.ids(messages)
    messages = messages + [{"role": "assistant", "content": "They hold lines."}, user("Thanks. And now?")]
    now = agent.ids(messages)
    assert len(last) - start > 500
    assert agent.prefilled(messages) == len(now) - (start - USER)
    # And the loop goes on from there.
    after = messages + [call("ls", "I list."), result("a b c")]
    assert agent.prefilled(after) == len(agent.ids(after)) - (len(now) - USER)


def test_regenerate_computes_nothing(agent):
    messages = [SYSTEM, user("Tell me something.")]
    n = len(agent.ids(messages))
    assert agent.prefilled(messages, logprobs=True, top_logprobs=3, max_tokens=20) == n
    first = agent.answer
    assert agent.prefilled(messages, logprobs=True, top_logprobs=3, max_tokens=20) == 0
    assert agent.answer["choices"] == first["choices"]
    assert agent.prefilled(messages, max_tokens=1) == 0
    assert agent.prefilled(messages, temperature=1.0, seed=3) == 0


def test_choices_share_one_prefill(agent):
    messages = [SYSTEM, user("Tell me something.")]
    agent.prefilled(messages, n=3, temperature=1.0, seed=1)
    assert len(agent.answer["choices"]) == 3
    assert agent.answer["timings"]["prompt_n"] == len(agent.ids(messages))
    assert agent.prefilled(messages) == 0


def test_edit_of_an_earlier_message_and_back(agent):
    first = [SYSTEM, user("Name a tree.")]
    start = len(agent.ids(first)) - USER
    agent.prefilled(first)
    reply = {"role": "assistant", "content": "An oak is a tree. " * 20}
    second = first + [reply, user("Name another one.")]
    end = len(agent.ids(second)) - USER
    agent.prefilled(second)
    edited = first + [reply, user("Name a bird.")]
    assert agent.prefilled(edited) == len(agent.ids(edited)) - start
    assert agent.prefilled(second) == 0
    third = second + [{"role": "assistant", "content": "A birch."}, user("More?")]
    assert agent.prefilled(third) == len(agent.ids(third)) - end


def test_sub_agents_and_a_title_request_between_the_turns(agent):
    main = [SYSTEM, user("Refactor the project.")]
    agent.prefilled(main)
    helper = {"role": "system", "content": "You search for things and report them in short. " * 40}
    others = {
        "a": [helper, user("Find all callers of f.")],
        "b": [helper, user("Find all tests of g.")],
        "title": [{"role": "system", "content": "Write a title of three words."}, user("Refactor the project.")],
    }
    shared = common(agent.ids(others["a"]), agent.ids(others["b"]))
    before, slack = agent.ids(main), USER
    for turn, main in enumerate(tool_loop(agent, main, 3)):
        for name, messages in others.items():
            tools = () if name == "title" else (BASH,)
            now = len(agent.ids(messages, tools))
            computed = agent.prefilled(messages, tools)
            if turn > 0:
                assert computed == others_left[name], name
            elif name == "b":
                # The first helper's prompt left a snapshot where its system message ended: "\n<|im_start|>user\n" is read again.
                assert now - computed == shared - 4 - common_words(agent, others)
            else:
                assert computed == now
        others_left = {}
        for name, messages in others.items():
            tools = () if name == "title" else (BASH,)
            grown = messages + [call("ls", "I look."), result("x")]
            others_left[name] = len(agent.ids(grown, tools)) - (len(agent.ids(messages, tools)) - (USER if turn == 0 else TOOL))
            others[name] = grown
        now = agent.ids(main)
        assert agent.prefilled(main) == len(now) - (len(before) - slack)
        before, slack = now, TOOL


def common_words(agent, others):
    """Tokens at the start of both questions that are equal by chance."""
    a, b = (others[name][1]["content"] for name in "ab")
    head = "<|im_end|>\n<|im_start|>user\n"
    ids = [agent.post("/tokenize", {"content": head + text, "parse_special": True})["tokens"] for text in (a, b)]
    return common(*ids) - 5


def test_three_requests_at_once_read_their_common_beginning_once(agent):
    agents = [Agent(agent.server, agent.salt) for _ in range(3)]
    system = {"role": "system", "content": "You search for things and report them in short. " * 100}
    prompts = [[system, user(f"{i} is the number to think about.")] for i in range(3)]
    computed = [0, 0, 0]

    def ask(i):
        computed[i] = agents[i].prefilled(prompts[i])

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = [len(agent.ids(prompt)) for prompt in prompts]
    assert max(computed) == whole[computed.index(max(computed))]
    assert sum(computed) < whole[0] + 100


def test_new_conversation_with_the_same_system_prompt_and_tools(agent):
    first = [SYSTEM, user("Name a tree.")]
    agent.prefilled(first)
    ids = agent.ids(first)
    system_end = ids.index(agent.post("/tokenize", {"content": "<|im_end|>", "parse_special": True})["tokens"][0]) + 1
    other = [SYSTEM, user("What is the time?")]
    assert agent.prefilled(other) == len(agent.ids(other)) - system_end
    assert agent.prefilled(other, tools=()) > system_end // 2, "other tools are another beginning"


def test_thinking_switched_on_and_off(agent):
    messages = [SYSTEM, user("What is in the files?")]
    off, on = agent.ids(messages), agent.ids(messages, thinking=True)
    assert agent.prefilled(messages) == len(off)
    assert agent.prefilled(messages, thinking=True) == len(on) - (len(off) - USER)
    assert agent.prefilled(messages) == 0
    assert agent.prefilled(messages, thinking=True) == 0
    for turn, messages in enumerate(tool_loop(agent, messages, 4)):
        thinking = turn % 2 == 1
        now = agent.ids(messages, thinking=thinking)
        # An open think block goes on as the history shows it; a closed one parts after "<think>".
        base = len(on) if turn == 0 else len(before) - (0 if was_thinking else TOOL)
        assert agent.prefilled(messages, thinking=thinking) == len(now) - base
        before, was_thinking = now, thinking


def test_says_where_a_prompt_parted_from_the_last_one(cache_server, agent):
    system = "It is {} now. " + "You are a careful assistant. " * 40
    for clock in ("noon", "midnight"):
        agent.prefilled([{"role": "system", "content": system.format(clock)}, user("Hi")], tools=())
    miss = json.loads(cache_server.get("/debug/last-miss"))["miss"]
    assert miss["cached_tokens"] == 0
    assert miss["text"]["before"].endswith("It is") or miss["text"]["before"].endswith("It is ")
    assert "noon" in miss["text"]["earlier"] and "midnight" in miss["text"]["now"]
    assert "noon" in cache_server.log()
    assert cache_server.metric("cache_misses_total") >= 1


def test_what_the_gauges_say(cache_server, agent):
    agent.prefilled([SYSTEM, user("Hi")])
    agent.prefilled([SYSTEM, user("Hi")])
    cache = json.loads(cache_server.get("/props"))["cache"]
    assert 0 < cache["page_bytes"] + cache["state_bytes"] + cache["index_bytes"] <= cache["bytes"] <= cache["budget_bytes"]
    assert cache["budget_bytes"] <= 300 << 20
    assert cache_server.metric("cache_snapshots") == cache["snapshots"] >= 2
    assert cache_server.metric("cache_hits_total") >= 1
