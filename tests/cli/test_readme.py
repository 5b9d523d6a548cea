"""README.md as a newcomer uses it: every command in it is run, its samples are what comes out, every agent's snippet works."""
import json
import os
import re
import shlex
import shutil
import subprocess
import time
import urllib.error
import urllib.request

import openai
import pytest
from hub_server import Hub, Repo

PROGRAM = "build/release/espalier"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Commands of the README that other tests run.
ELSEWHERE = {"./dev demo": "cli/test_demo.py", "./dev package": "package/test_package.py",
             "sudo apt-get install ./build/package/espalier_VERSION_amd64.deb": "package/test_package.py"}


@pytest.fixture(scope="module")
def readme(source_dir):
    return (source_dir / "README.md").read_text(encoding="utf-8")


def fences(text, language):
    return [body for name, body in FENCE.findall(text) if name == language]


def commands_of(block):
    """Lines, those with an open quotation joined."""
    commands, held = [], ""
    for line in block.splitlines():
        held += line
        try:
            shlex.split(held)
        except ValueError:
            held += "\n"
            continue
        commands.append(held)
        held = ""
    assert not held, block
    return commands


class Shell:
    """Runs the README's commands: its program, its port, a hub on loopback for ORG/NAME, and a home of its own."""

    def __init__(self, espalier_bin, hub, home):
        self.espalier_bin, self.home = espalier_bin, home
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "ESPALIER_", "XDG_"))}
        self.environment = clean | {"HOME": str(home), "HF_ENDPOINT": hub.url, "ESPALIER_PORT": "0", "ESPALIER_CACHE_RAM": "64M"}
        self.server, self.address = None, ""

    def run(self, command):
        command = command.replace(PROGRAM, shlex.quote(str(self.espalier_bin))).replace("http://127.0.0.1:8080", self.address or "nothing")
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=120, check=False,
                              cwd=self.home, env=self.environment)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def serve(self, command):
        self.stop()
        log = self.home / "serve.log"
        with log.open("w") as file:
            self.server = subprocess.Popen(shlex.split(command.replace(PROGRAM, str(self.espalier_bin))), stdout=file, stderr=file,
                                           cwd=self.home, env=self.environment)
        deadline = time.monotonic() + 60
        while "\nagents " not in log.read_text():
            assert self.server.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        self.address = re.search(r"serving +(http://\S+)", log.read_text()).group(1)

    def stop(self):
        if self.server is not None:
            self.server.terminate()
            self.server.wait(timeout=20)


@pytest.fixture()
def shell(espalier_bin, source_dir, tmp_path):
    with Hub() as hub:
        hub.repos["ORG/NAME"] = Repo({path.name: path.read_bytes() for path in (source_dir / "demo" / "model").iterdir()})
        running = Shell(espalier_bin, hub, tmp_path)
        yield running
        running.stop()


def test_every_command_runs(readme, shell, source_dir):
    version = re.search(r"project\(espalier VERSION (\S+)", (source_dir / "CMakeLists.txt").read_text()).group(1)
    outputs = {}
    for command in [command for block in fences(readme, "sh") for command in commands_of(block)]:
        if command.replace(version, "VERSION") in ELSEWHERE:
            assert (source_dir / "tests" / ELSEWHERE[command.replace(version, "VERSION")]).exists()
        elif command.startswith(f"{PROGRAM} serve"):
            shell.serve(command)
        elif "man -l" not in command or shutil.which("man"):
            outputs[command] = shell.run(command)
    curl = next(output for command, output in outputs.items() if command.startswith("curl"))
    sample = next(block for block in fences(readme, "") if "tool_calls" in block).strip()
    assert re.search(re.escape(sample).replace(re.escape("call_…"), r"\w+"), curl), curl
    assert "ORG/NAME" in outputs[f"{PROGRAM} models"]
    assert shell.server is not None and len(outputs) >= 9


def commands_in_text(text):
    """espalier with words after it, in running text or on an indented line."""
    return re.findall(r"`(espalier [^`\n]+)`", text) + re.findall(r"^    (?:build/release/)?(espalier .+)$", text, re.MULTILINE)


def test_commands_in_every_page_exist(espalier_bin, source_dir):
    pages = [source_dir / "README.md", source_dir / "demo" / "README.md", *sorted((source_dir / "docs").rglob("*.md"))]
    helps = {}

    def help_of(path):
        if path not in helps:
            helps[path] = subprocess.run([espalier_bin, *path, "--help"], capture_output=True, text=True, check=True).stdout
        return helps[path]

    n_commands, wrong = 0, []
    for page in pages:
        for command in commands_in_text(page.read_text(encoding="utf-8")):
            n_commands += 1
            path = ()
            for word in command.split()[1:]:
                listed = re.findall(r"^  ([a-z-]+)  ", help_of(path).partition("Subcommands:")[2], re.MULTILINE)
                if listed and re.fullmatch(r"[a-z-]+", word) and not word.startswith("-"):
                    if word not in listed:
                        wrong.append(f"{page.name}: {command}: no command {word}")
                        break
                    path += (word,)
            wrong += [f"{page.name}: {command}: no option {option}"
                      for option in re.findall(r"(?<!\S)--[a-z-]+", command) if option not in help_of(path)]
    assert not wrong
    assert n_commands > 20


TOOL = {"type": "function", "function": {"name": "bash", "description": "Run a bash command", "parameters": {
    "type": "object", "properties": {"command": {"type": "string", "description": "The command"}}, "required": ["command"]}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
HISTORY = [{"role": "system", "content": "You are an agent in a shell. Use the tool bash."},
           {"role": "user", "content": "The test ./tests/test_amber_river.py fails. Fix the code."},
           {"role": "assistant", "content": None, "tool_calls": [CALL]},
           {"role": "tool", "tool_call_id": "call_1", "content": "src\ntests"}]


@pytest.fixture()
def served(shell):
    shell.serve(f"{PROGRAM} serve")
    return shell


def in_service(served, address):
    assert address.startswith("http://127.0.0.1:8080/"), address
    return address.replace("http://127.0.0.1:8080", served.address)


def ask(base_url, key, model, **fields):
    client = openai.OpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=60)
    return client.chat.completions.create(model=model, messages=HISTORY, tools=[TOOL], temperature=0, **fields)


def streamed_call(base_url, key, model):
    """What a client of the AI SDK or of OpenAI's package puts together from the stream."""
    name, arguments, finish, usage = None, "", None, None
    for chunk in ask(base_url, key, model, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or []:
                assert call.index == 0
                if call.function.name:
                    assert call.id
                    name = call.function.name
                arguments += call.function.arguments or ""
    assert finish == "tool_calls" and usage.prompt_tokens > 0
    return name, json.loads(arguments)


def test_opencode(readme, served):
    config = json.loads(fences(readme, "json")[0])
    provider, model = config["model"].split("/")
    settings = config["provider"][provider]
    assert settings["npm"] == "@ai-sdk/openai-compatible" and list(settings["models"]) == [model]
    base_url = in_service(served, settings["options"]["baseURL"])
    name, arguments = streamed_call(base_url, settings["options"]["apiKey"], model)
    assert name == "bash" and list(arguments) == ["command"]
    listed = openai.OpenAI(base_url=base_url, api_key="none").models.list().data[0]
    assert listed.id == model and listed.context_length == settings["models"][model]["limit"]["context"]


def test_qwen_code(readme, served):
    export = next(block for block in fences(readme, "sh") if block.startswith("export OPENAI_BASE_URL"))
    variables = dict(word.split("=", 1) for word in shlex.split(export)[1:])
    name, arguments = streamed_call(in_service(served, variables["OPENAI_BASE_URL"]), variables["OPENAI_API_KEY"], variables["OPENAI_MODEL"])
    assert name == "bash" and list(arguments) == ["command"]


def test_cline(readme, served):
    block = next(block for block in fences(readme, "") if block.startswith("Base URL: "))
    settings = dict(line.split(": ", 1) for line in block.splitlines())
    name, arguments = streamed_call(in_service(served, settings["Base URL"]), settings["API Key"], settings["Model ID"])
    assert name == "bash" and list(arguments) == ["command"]


def test_mini_swe_agent(readme, served):
    settings = dict(line.strip().split(": ", 1) for line in fences(readme, "yaml")[0].splitlines() if ": " in line)
    provider, model = settings["model_name"].split("/")
    assert provider == "openai"
    reply = ask(in_service(served, settings["api_base"]), settings["api_key"], model).choices[0]
    assert reply.finish_reason == "tool_calls"
    assert [list(json.loads(call.function.arguments)) for call in reply.message.tool_calls] == [["command"]]


@pytest.mark.parametrize("agent, path", [("Codex", "/v1/responses"), ("Claude Code", "/v1/messages")])
def test_what_is_said_not_to_work(readme, served, agent, path):
    assert f"**{agent}**" in readme and "Neither dialect is built yet" in readme
    request = urllib.request.Request(served.address + path, b"{}", {"Content-Type": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=10)
    refused.value.close()
    assert refused.value.code == 404
