"""A server of a tiny model with random weights, and OpenAI's own client in front of it."""
import re
import subprocess
import time
import urllib.request

import openai
import pytest

START_SECONDS = 60


@pytest.fixture(scope="session")
def make_model(espalier_bin, source_dir, tmp_path_factory):
    """Makes a checkpoint folder as a user has one: random weights, the tiny tokenizer, Qwen's template."""

    def make(shape, weights):
        folder = tmp_path_factory.mktemp("model") / shape
        text = source_dir / "tests" / "golden" / "text"
        subprocess.run(
            [espalier_bin, "eval", "make-model", "--shape", shape, "--format", weights, "--out", folder, "--seed", "1",
             "--tokenizer", text / "tokenizer" / "tiny" / "tokenizer.json", "--chat-template", text / "templates" / "qwen3.6.jinja"],
            check=True, timeout=300)
        return folder

    return make


@pytest.fixture(scope="session")
def tiny_model(make_model):
    return make_model("tiny", "bf16")


class Server:
    def __init__(self, espalier_bin, model, log_path, *flags):
        self.log_path = log_path
        if "--cache-dir" not in flags:
            flags = (*flags, "--cache-dir", "off")  # nothing of a test stays behind, or is found by the next one
        self.process = subprocess.Popen(
            [espalier_bin, "serve", model, "--port", "0", "--thinking", "off", "--threads", "2", *flags],
            stderr=log_path.open("w"), stdout=subprocess.DEVNULL)
        self.url = self._wait_for_url()

    def _wait_for_url(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            found = re.search(r"serving\s+(http://\S+)", self.log())
            if found:
                return found.group(1)
            assert self.process.poll() is None, f"the server ended:\n{self.log()}"
            time.sleep(0.05)
        raise AssertionError(f"the server is not ready after {START_SECONDS} s:\n{self.log()}")

    def log(self):
        return self.log_path.read_text()

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return answer.read().decode()

    def metric(self, name):
        return float(re.search(rf"^espalier_{name} (\S+)$", self.get("/metrics"), re.MULTILINE).group(1))

    def client(self):
        return openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0, timeout=60)

    def stop(self):
        self.process.terminate()
        return self.process.wait(timeout=20)

    def kill(self):
        self.process.kill()
        self.process.wait(timeout=20)


@pytest.fixture(scope="session")
def start_server(espalier_bin, tiny_model, tmp_path_factory):
    """Starts further servers, of the same model unless another is named; all end with the session."""
    servers = []

    def start(*flags, model=tiny_model):
        log_path = tmp_path_factory.mktemp("serve") / "log.txt"
        servers.append(Server(espalier_bin, model, log_path, *flags))
        return servers[-1]

    yield start
    for server in servers:
        if server.process.poll() is None:
            server.process.terminate()
    for server in servers:
        server.process.wait(timeout=20)


@pytest.fixture(scope="session")
def server(start_server):
    return start_server("--ctx", "4096", "--alias", "tiny")


@pytest.fixture()
def client(server):
    return server.client()
