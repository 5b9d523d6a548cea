"""The OpenAI Python client against `espalier serve`. The weights are random, so replies mean nothing; their form must be right."""
import json
import time

import openai
import pytest

BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Runs a command",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}
HELLO = [{"role": "user", "content": "Say something."}]


def ask(client, messages=HELLO, **fields):
    fields = {"max_tokens": 24, "temperature": 0, **fields}
    return client.chat.completions.create(model="tiny", messages=messages, **fields)


def test_lists_its_model(client):
    assert [model.id for model in client.models.list()] == ["tiny"]


def test_streams_what_it_answers_whole(client):
    whole = ask(client)
    chunks = list(ask(client, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert streamed == (whole.choices[0].message.content or "")
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    usage = chunks[-1].usage
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert chunks[-1].model_extra["timings"]["predicted_n"] == usage.completion_tokens


def test_usage_comes_in_a_chunk_of_its_own_when_asked_for(client):
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == []
    assert chunks[-1].usage.prompt_tokens > 0


def test_exact_length_with_ignored_end(client):
    reply = ask(client, max_tokens=17, extra_body={"ignore_eos": True})
    assert reply.usage.completion_tokens == 17
    assert reply.choices[0].finish_reason == "length"


def test_sampling_repeats_with_its_seed(client):
    def text(seed):
        return ask(client, temperature=1.0, seed=seed, max_tokens=32).choices[0].message.content

    assert text(7) == text(7)
    assert len({text(seed) for seed in range(4)}) > 1


def test_tool_call_round_trip(client):
    """A forced call by name, streamed; then its result is sent back and the model goes on."""
    fields = {"tools": [BASH], "tool_choice": {"type": "function", "function": {"name": "bash"}}, "max_tokens": 40}
    whole = ask(client, **fields).choices[0]
    call = whole.message.tool_calls[0]
    assert call.type == "function" and call.function.name == "bash" and call.id.startswith("call_")

    fragments = []
    for chunk in ask(client, stream=True, **fields):
        fragments += chunk.choices[0].delta.tool_calls or []
    assert fragments[0].id and fragments[0].function.name == "bash"
    assert all(fragment.function.name is None for fragment in fragments[1:] if fragment.index == 0)
    assert "".join(f.function.arguments for f in fragments if f.index == 0) == call.function.arguments

    history = HELLO + [
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": call.id, "type": "function", "function": {"name": "bash", "arguments": json.dumps({"command": "ls"})}}]},
        {"role": "tool", "tool_call_id": call.id, "content": "README.md\nsrc"},
    ]
    answer = ask(client, history, tools=[BASH])
    assert answer.choices[0].finish_reason in ("stop", "length", "tool_calls")
    assert answer.usage.prompt_tokens > 0


def test_broken_arguments_in_the_history_do_no_harm(client):
    history = HELLO + [
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "bash", "arguments": "{\"command\": \"unfinish"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "error"},
    ]
    assert ask(client, history, tools=[BASH]).usage.prompt_tokens > 0


def test_next_turn_continues_from_the_last(client):
    messages = [{"role": "user", "content": "word " * 300}]
    first = ask(client, messages)
    messages += [{"role": "assistant", "content": first.choices[0].message.content or ""}, {"role": "user", "content": "Go on."}]
    second = ask(client, messages)
    assert second.usage.prompt_tokens_details.cached_tokens > 250


def test_errors_are_the_clients_own_exceptions(client):
    with pytest.raises(openai.BadRequestError) as error:
        ask(client, [{"role": "user", "content": "word " * 6000}])
    assert error.value.code == "context_length_exceeded"
    assert "exceeds the available context size" in str(error.value)
    with pytest.raises(openai.BadRequestError) as error:
        ask(client, [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}])
    assert error.value.param == "messages[0].content[0]"
    with pytest.raises(openai.BadRequestError) as error:
        ask(client, response_format={"type": "json_object"})
    assert error.value.code == "unsupported_parameter"


def test_completions(client):
    reply = client.completions.create(model="tiny", prompt="Once upon a time", max_tokens=8, temperature=0)
    streamed = client.completions.create(model="tiny", prompt="Once upon a time", max_tokens=8, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == reply.choices[0].text


def test_client_that_leaves_frees_its_place(server, client):
    stream = ask(client, stream=True, max_tokens=3000, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    deadline = time.monotonic() + 10
    while server.metric("jobs_running") > 0:
        assert time.monotonic() < deadline, "the job of a client that left still runs"
        time.sleep(0.05)
    assert server.metric("clients_gone_total") >= 1


def test_log_has_numbers_and_no_text(server, client):
    ask(client, [{"role": "user", "content": "xylophone"}])
    log = server.log()
    assert "POST /v1/chat/completions 200" in log and "prompt=" in log and "finish=" in log
    assert "xylophone" not in log


def test_key_is_asked_for_and_the_end_is_clean(start_server):
    server = start_server("--ctx", "4096", "--api-key", "sesame")
    with pytest.raises(openai.AuthenticationError):
        server.client().models.list()
    assert ask(server.client().with_options(api_key="sesame")).choices
    assert server.stop() == 0
