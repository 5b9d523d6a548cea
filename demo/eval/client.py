"""A server process for the time of an evaluation, and a chat client for it. Standard library only."""

import http.client
import json
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

START_SECONDS = 120
REPLY_SECONDS = 600


def output_of(program: Path, *words: object, given: str = "") -> str:
    """What a command of the program prints. Raises CalledProcessError when it fails."""
    command = [str(program), *map(str, words)]
    return subprocess.run(command, input=given, check=True, stdout=subprocess.PIPE, text=True).stdout


def ids_of(program: Path, model: Path, text: str) -> list[int]:
    return json.loads(output_of(program, "eval", "tokenize", model, given=json.dumps({"text": text, "special": "all"})))["ids"]


class Server:
    def __init__(self, program: Path, model: Path, log: Path, options: list[str]):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.program = program
        self._command = [str(program), "serve", str(model), "--port", str(self.port), "--thinking", "off", "--cache-dir", "off", *options]
        self._log = log
        self._process: subprocess.Popen | None = None

    def peak_memory_mib(self) -> float:
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "Server":
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended at once, see {self._log}: {' '.join(self._command)}")
            try:
                if self._request("GET", "/health", None)[0] == 200:
                    return self
            except OSError:
                time.sleep(0.2)
        self.__exit__(None, None, None)
        raise RuntimeError(f"the server did not answer within {START_SECONDS} s, see {self._log}")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def chat(self, messages: list[dict], tools: list[dict], most_tokens: int = 256) -> dict:
        """The assistant message and "finish_reason"."""
        body = {"messages": messages, "tools": tools, "temperature": 0.0, "max_completion_tokens": most_tokens, "seed": 42}
        status, answer = self._request("POST", "/v1/chat/completions", body)
        if status != 200:
            raise RuntimeError(f"the server answered {status}: {answer}")
        choice = answer["choices"][0]
        return {**choice["message"], "finish_reason": choice["finish_reason"]}

    def _request(self, method: str, path: str, body: dict | None) -> tuple[int, dict]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REPLY_SECONDS)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            response = connection.getresponse()
            raw = response.read()
            return response.status, json.loads(raw) if raw else {}
        finally:
            connection.close()


def calls_of(message: dict) -> list[dict] | None:
    """Tool calls as {"name", "arguments"}; None where one is malformed (arguments that are no JSON object)."""
    calls: list[dict] = []
    for call in message.get("tool_calls") or []:
        try:
            arguments = json.loads(call["function"]["arguments"])
        except json.JSONDecodeError:
            return None
        if not isinstance(arguments, dict):
            return None
        calls.append({"name": call["function"]["name"], "arguments": arguments})
    return calls


def is_well_formed_bash(message: dict) -> bool:
    """At least one call, each of them bash with exactly one string command, ended by the model itself, no text of markers beside."""
    calls = calls_of(message)
    if not calls or message["finish_reason"] != "tool_calls":
        return False
    good = all(call["name"] == "bash" and list(call["arguments"]) == ["command"] for call in calls)
    return good and all(isinstance(call["arguments"]["command"], str) for call in calls) and "<" not in (message.get("content") or "")
