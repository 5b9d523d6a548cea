"""From the command to the first answer: start-up lines, self-test, where options may come from, what a model is called."""
import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from hub_server import Hub, Repo

START_SECONDS = 60


class Served:
    """espalier serve with its output in a file; ends with the block."""

    def __init__(self, espalier_bin, log_path, *arguments, **environment):
        self.log_path = log_path
        clean = {key: value for key, value in os.environ.items() if not key.startswith("ESPALIER_")}
        self.process = subprocess.Popen([espalier_bin, "serve", "--cache-ram", "64M", *map(str, arguments)], stdout=subprocess.DEVNULL,
                                        stderr=log_path.open("w"), env=clean | environment)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=20)

    def log(self):
        return self.log_path.read_text()

    def url(self):
        deadline = time.monotonic() + START_SECONDS
        while not (found := re.search(r"^agents .*", self.log(), re.MULTILINE)):
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)
        return re.search(r"serving +(http://\S+)", self.log()).group(1) if found else None

    def get(self, path):
        with urllib.request.urlopen(self.url() + path, timeout=10) as answer:
            return json.load(answer)


@pytest.fixture()
def serve(espalier_bin, tmp_path):
    return lambda *arguments, **environment: Served(espalier_bin, tmp_path / "log.txt", *arguments, **environment)


def test_ten_lines_say_what_runs_and_how_to_reach_it(serve, tmp_path):
    with serve("--port", 0, "--cache-dir", tmp_path / "cache") as served:
        url = served.url()
        lines = served.log().splitlines()
        assert len(lines) <= 10, served.log()
        assert "built-in demo model" in lines[0] and "espalier pull" in lines[0]
        names = [line.split(" ", 1)[0] for line in lines[1:]]
        assert names == ["espalier", "model", "memory", "context", "drafts", "cache", "serving", "try", "agents"]
        text = dict(line.split(" ", 1) for line in lines[1:])
        assert "kernels" in text["espalier"]
        assert "nvfp4" in text["model"] and "activations" in text["model"] and text["model"].endswith("self-test passed")
        assert "trained for" in text["context"] and str(tmp_path / "cache") in text["cache"]
        command = text["try"].strip().split(" ", 1)[1]
        answer = json.loads(subprocess.run(["bash", "-c", "curl -s " + command], check=True, capture_output=True, text=True).stdout)
        assert answer["choices"][0]["message"]["role"] == "assistant"
        assert f"OPENAI_BASE_URL={url}/v1" in text["agents"]


@pytest.mark.parametrize("host, shown", [("0.0.0.0", "http://127.0.0.1:"), ("::", "http://[::1]:")])
def test_the_lines_give_an_address_of_this_machine_and_no_key(serve, host, shown):
    if host == "::" and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    with serve("--host", host, "--port", 0, "--cache-dir", "off", "--api-key", "very-secret") as served:
        served.url()
        text = dict(line.split(" ", 1) for line in served.log().splitlines()[1:])
        assert shown in text["try"] and shown in text["agents"] and "very-secret" not in served.log()
        command = text["try"].strip().replace("curl ", "curl -gs ", 1)
        answer = subprocess.run(["bash", "-c", command], check=True, capture_output=True, text=True,
                                env={**os.environ, "ESPALIER_API_KEY": "very-secret"}).stdout
        assert json.loads(answer)["choices"], answer


def health(port):
    """The status and the share loaded; None while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as answer:
            return json.load(answer)["status"], 1.0
    except urllib.error.HTTPError as refused:
        assert refused.code == 503
        body = json.load(refused)
        return body["status"], body["progress"]
    except urllib.error.URLError:
        return None


def test_health_says_loading_until_the_self_test_has_passed(serve):
    """Listens at once; the slowest tier takes about a second for the self-test."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    seen = []
    with serve("--port", port, "--cache-dir", "off", ESPALIER_ISA="scalar") as served:
        while not seen or seen[-1][0] != "ready":
            assert served.process.poll() is None, served.log()
            seen += filter(None, [health(port)])
            time.sleep(0.01)
        assert served.url() == f"http://127.0.0.1:{port}"
    assert {status for status, _ in seen[:-1]} == {"loading"}
    shares = [share for _, share in seen]
    assert shares == sorted(shares) and 0 <= shares[0] and shares[-1] <= 1


def damage(model, edit):
    path = model / "self_test.json"
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("edit, code, words", [
    (lambda known: known["reply"].__setitem__(3, 7), "internal", ["token 3 of a known reply", "espalier doctor", "kernels"]),
    (lambda known: known["reply"].__setitem__(0, 1 << 30), "invalid_input", ["outside the vocabulary"]),
    (lambda known: known.__setitem__("prompt", "text"), "invalid_input", ["self_test.json"]),
])
def test_what_fails_the_self_test_is_not_served(espalier_bin, source_dir, tmp_path, edit, code, words):
    model = tmp_path / "model"
    shutil.copytree(source_dir / "demo" / "model", model)
    damage(model, edit)
    done = subprocess.run([espalier_bin, "serve", model, "--port", "0", "--cache-dir", "off"], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"espalier: {code}: ") and done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize("tier", ["scalar", "avx2", "avxvnni", "avx512", "amx"])
def test_the_built_in_model_passes_on_every_tier(espalier_bin, source_dir, tmp_path, tier):
    environment = {**os.environ, "ESPALIER_ISA": tier}
    version = subprocess.run([espalier_bin, "--version"], capture_output=True, text=True, check=True, env=environment).stdout
    if f"kernels {tier}" not in version:
        pytest.skip(f"this machine has no {tier}")
    model = source_dir / "demo" / "model"
    known = json.loads((model / "self_test.json").read_text())
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps(known["prompt"]))
    for mode in ("ckpt", "a8"):
        command = [espalier_bin, "eval", "greedy", model, "--ids", ids, "-n", str(len(known["reply"])), "--acts", mode]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        assert json.loads(done.stdout) == known["reply"], mode


def test_the_command_line_wins_over_the_environment_and_that_over_a_file(serve, tmp_path):
    config = tmp_path / "espalier.toml"
    config.write_text('[serve]\nalias = "from-file"\nport = 0\ncache-dir = "off"\nctx = 2048\nMODEL = "espalier-demo"\n')

    def alias(*arguments, **environment):
        with serve(*arguments, **environment) as served:
            return served.get("/v1/models")["data"][0]["id"], "built-in" in served.log()

    assert alias("--config", config) == ("from-file", False)
    assert alias("--config", config, ESPALIER_ALIAS="from-environment") == ("from-environment", False)
    assert alias("--config", config, "--alias", "from-line", ESPALIER_ALIAS="from-environment") == ("from-line", False)
    assert alias("--port", 0, "--cache-dir", "off", ESPALIER_ALIAS="alone", ESPALIER_MODEL="espalier-demo") == ("alone", False)


def test_a_lone_prompt_goes_to_the_model_of_the_environment(espalier_bin, tmp_path):
    missing = str(tmp_path / "no-model")
    done = subprocess.run([espalier_bin, "run", "Name three trees."], capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, "ESPALIER_MODEL": missing})
    assert done.returncode == 1 and missing in done.stderr and "Name three" not in done.stderr


@pytest.mark.parametrize("text, words", [
    ("[serve]\nprot = 1\n", ["serve.prot"]), ("[sevre]\nport = 1\n", ["sevre"]), ("[serve]\nport = many\n", ["--port", "many"]),
    ("no such thing\n", ["no such thing"]), ("[serve\n", ["[serve"]), (None, ["missing.toml"]),
])
def test_a_config_that_cannot_be_right(espalier_bin, tmp_path, text, words):
    config = tmp_path / ("missing.toml" if text is None else "c.toml")
    if text is not None:
        config.write_text(text)
    done = subprocess.run([espalier_bin, "serve", "--config", config], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2 and done.stderr.startswith("espalier: invalid_input: ") and done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


def test_a_variable_that_cannot_be_right_is_named(espalier_bin):
    done = subprocess.run([espalier_bin, "serve"], capture_output=True, text=True, timeout=30, check=False,
                          env={**os.environ, "ESPALIER_PORT": "many"})
    assert done.returncode == 2 and "ESPALIER_PORT" in done.stderr and "many" in done.stderr


def test_a_pulled_model_is_served_under_its_name(espalier_bin, serve, source_dir, tmp_path):
    """Not under that of its folder in the cache, which is the commit's."""
    files = {path.name: path.read_bytes() for path in (source_dir / "demo" / "model").iterdir()}
    with Hub() as hub:
        hub.repos["Acme/Small-Model"] = Repo(files)
        environment = {"HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": hub.url}
        subprocess.run([espalier_bin, "pull", "Acme/Small-Model"], check=True, capture_output=True, env={**os.environ, **environment})
    with serve("Acme/Small-Model", "--port", 0, "--cache-dir", "off", **environment) as served:
        assert served.get("/v1/models")["data"][0]["id"] == "Small-Model"


def output_of(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=True, **options).stdout


def test_the_manual_page_names_every_command_and_option(espalier_bin):
    page = output_of(espalier_bin, "man").replace("\\-", "-")
    commands = re.findall(r"^  ([a-z]+) ", output_of(espalier_bin, "--help").split("Subcommands:")[1], re.MULTILINE)
    assert len(commands) >= 10
    for command in commands:
        assert f"espalier {command}" in page
        for option in re.findall(r"^  (?:-\w,)?(--[\w-]+)", output_of(espalier_bin, command, "--help"), re.MULTILINE):
            assert option == "--help" or option in page, f"{command} {option}"
    if shutil.which("man"):
        shown = subprocess.run(["man", "-l", "-"], input=output_of(espalier_bin, "man"), capture_output=True, text=True, check=True,
                               env={**os.environ, "MANROFFOPT": "-ww", "MAN_KEEP_STDERR": "1"})
        assert "espalier serve" in shown.stdout and "warning" not in shown.stderr


@pytest.mark.parametrize("words, wanted, unwanted", [
    (["ser"], ["serve"], ["run"]), (["serve", "--po"], ["--port"], ["--path"]), (["serve", "--thinking", ""], ["on", "off"], ["serve"]),
    (["serve", "esp"], ["espalier-demo"], ["--port"]), (["cache", ""], ["ls", "rm"], ["serve"]), (["bench", "ag"], ["agentic"], []),
])
def test_bash_completes(espalier_bin, tmp_path, words, wanted, unwanted):
    script = tmp_path / "completion"
    script.write_text(output_of(espalier_bin, "completion", "bash"))
    line = " ".join(f'"{word}"' for word in ["espalier", *words])
    program = f'source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _espalier; printf "%s\\n" "${{COMPREPLY[@]}}"'
    environment = {**os.environ, "PATH": f"{espalier_bin.parent}:{os.environ['PATH']}"}
    found = output_of("bash", "-c", program, env=environment).split()
    assert set(wanted) <= set(found) and not set(unwanted) & set(found), found
