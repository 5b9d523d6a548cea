"""espalier pull and espalier models against a hub on loopback: what lands where, what is asked of whom, and every way it can fail."""
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import time

import pytest
from hub_server import Hub, Repo, git_sha1, sha256

MIB = 1 << 20
NAME = "Acme/Small-Model"


@pytest.fixture(scope="module")
def model_files(espalier_bin, source_dir, tmp_path_factory):
    """A model folder as a hub has one, with things that nobody needs."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    text = source_dir / "tests" / "golden" / "text"
    subprocess.run([espalier_bin, "eval", "make-model", "--shape", "tiny", "--format", "bf16", "--out", folder, "--tokenizer",
                    text / "tokenizer" / "tiny" / "tokenizer.json", "--chat-template", text / "templates" / "qwen3.6.jinja"],
                   check=True, timeout=120)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    return files | {"README.md": b"words\n", "onnx/model.onnx": b"another format", ".gitattributes": b"*"}


@pytest.fixture(scope="module")
def large_files():
    """Weights large enough for several ranges; nothing that runs."""
    data = random.Random(1).randbytes(10 * MIB + 12345)
    return {"config.json": b'{"model_type": "qwen3_5"}', "model.safetensors": data}


@pytest.fixture()
def hub():
    with Hub() as running:
        yield running


def heed_interrupts():
    """In the new process: tests run in the background of a shell have SIGINT ignored, and so would the program."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Puller:
    def __init__(self, program, hub, home):
        self.program, self.hub, self.home = program, hub, home
        self.cache = home / "hub"
        clean = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy") and not key.startswith("HF_")}
        self.environment = clean | {"HF_HOME": str(home), "HF_ENDPOINT": hub.url}

    def start(self, *arguments, environment=None, **options):
        options.setdefault("preexec_fn", heed_interrupts)
        return subprocess.Popen([self.program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=self.environment | (environment or {}), **options)

    def run(self, *arguments, status=0, **options):
        process = self.start(*arguments, **options)
        process.out, process.err = process.communicate(timeout=120)
        assert process.returncode == status, process.err
        return process

    def fail(self, *arguments, **options):
        """The one line on stderr, of at most a screen's width or three."""
        error = self.run(*arguments, status=1, **options).err
        lines = [line for line in error.splitlines() if line.startswith("espalier: ")]
        assert len(lines) == 1 and error.splitlines()[-1] == lines[0], error
        return lines[0]

    def report(self, *arguments):
        return json.loads(self.run("pull", *arguments, "--json").out)

    def models(self):
        return json.loads(self.run("models", "--json").out)["models"]

    def repo_folder(self):
        return self.cache / "models--Acme--Small-Model"

    def files_in(self, part):
        folder = self.repo_folder() / part
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


@pytest.fixture()
def puller(espalier_bin, hub, tmp_path):
    return Puller(espalier_bin, hub, tmp_path / "huggingface")


def test_a_model_lands_in_the_cache_that_other_tools_share(puller, hub, model_files):
    repo = hub.repos[NAME] = Repo(model_files)
    commit = repo.revisions["main"]
    result = puller.run("pull", NAME)
    snapshot = puller.repo_folder() / "snapshots" / commit
    assert result.out == f"{snapshot}\n"
    assert "\r" not in result.err and result.err.count("\n") <= 2  # no progress line in a pipe
    wanted = sorted(name for name in model_files if name not in ("README.md", "onnx/model.onnx", ".gitattributes"))
    assert puller.files_in(f"snapshots/{commit}") == wanted
    for name in wanted:
        data = model_files[name]
        link = os.readlink(snapshot / name)
        assert link == f"../../blobs/{sha256(data) if repo.is_large(name) else git_sha1(data)}"
        assert (snapshot / name).read_bytes() == data
    assert (puller.repo_folder() / "refs" / "main").read_text() == commit
    assert puller.files_in("blobs") == sorted({os.readlink(snapshot / name).split("/")[-1] for name in wanted})  # no leftovers


def test_a_pulled_model_is_known_by_its_name(puller, hub, model_files):
    hub.repos[NAME] = Repo(model_files)
    report = puller.report(NAME)
    assert puller.models() == [{
        "name": NAME, "revision": "main", "commit": report["commit"], "type": json.loads(model_files["config.json"])["model_type"],
        "bytes": sum(entry["bytes"] for entry in report["files"]), "fetched": pytest.approx(time.time(), abs=300), "missing": "",
        "path": report["path"]}]
    table = puller.run("models").out
    assert NAME in table and f"1 in {puller.cache}" in table
    by_path, by_name, by_short_name = (puller.run("inspect", model, "--json").out
                                       for model in (report["path"], NAME, "Small-Model"))
    assert json.loads(by_name)["tokenizer"] == json.loads(by_path)["tokenizer"] == json.loads(by_short_name)["tokenizer"]
    answer = puller.run("run", NAME, "Hello", "--max-tokens", "2", "--temp", "0")
    assert answer.out.strip()
    assert "espalier pull Acme/Other fetches it" in puller.fail("inspect", "Acme/Other")


def test_what_is_there_is_not_fetched_again(puller, hub, large_files):
    hub.repos[NAME] = Repo(large_files)
    first = puller.report(NAME)
    assert first["received_bytes"] == sum(len(data) for data in large_files.values())
    hub.requests.clear()
    second = puller.report(NAME)
    assert second["received_bytes"] == 0 and second["path"] == first["path"]
    assert not [entry for entry in hub.requests if entry[0] == "store"]


def test_large_files_come_in_parallel_ranges_and_small_ones_whole(puller, hub, large_files):
    hub.repos[NAME] = Repo(large_files)
    puller.run("pull", NAME)
    ranges = sorted(headers["Range"] for server, method, _, headers in hub.requests if server == "store" and method == "GET")
    size = len(large_files["model.safetensors"])
    assert ranges == [f"bytes=0-{4 * MIB - 1}", f"bytes={4 * MIB}-{8 * MIB - 1}", f"bytes={8 * MIB}-{size - 1}"]
    assert not [path for _, _, path, headers in hub.requests if "Range" in headers and path.endswith("config.json")]
    assert hub.bytes_sent() == size


def test_an_index_says_which_weights_are_needed(puller, hub):
    shards = {f"model-0000{i}-of-00002.safetensors": bytes([i]) * 1000 for i in (1, 2)}
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    hub.repos[NAME] = Repo({"config.json": b"{}", "model.safetensors.index.json": json.dumps(index).encode(),
                            "consolidated.safetensors": b"twice", **shards})
    names = [entry["name"] for entry in puller.report(NAME)["files"]]
    assert sorted(names) == ["config.json", *shards, "model.safetensors.index.json"]
    assert puller.models()[0]["missing"] == ""
    os.unlink(os.path.join(puller.models()[0]["path"], "model-00002-of-00002.safetensors"))
    assert puller.models()[0]["missing"] == "1 of 2 files of weights"
    error = puller.fail("inspect", NAME)
    assert "lacks 1 of 2 files of weights" in error and f"espalier pull {NAME}" in error


def test_one_file_by_name(puller, hub):
    repo = hub.repos[NAME] = Repo({"config.json": b"{}", "sub/model q4.gguf": b"G" * 5000, "model-q8.gguf": b"H"})
    out = puller.run("pull", f"{NAME}:sub/model q4.gguf").out
    path = puller.repo_folder() / "snapshots" / repo.revisions["main"] / "sub" / "model q4.gguf"
    assert out == f"{path}\n" and path.read_bytes() == b"G" * 5000
    assert os.readlink(path) == f"../../../blobs/{sha256(b'G' * 5000)}"
    assert puller.files_in("snapshots") == [f"{repo.revisions['main']}/sub/model q4.gguf"]
    error = puller.fail("pull", f"{NAME}:no.gguf")
    assert "has no file no.gguf at main" in error and "model-q8.gguf" in error
    error = puller.fail("pull", NAME)
    assert "no model.safetensors" in error and "model-q8.gguf" in error and f"{NAME}:FILE" in error


def test_revisions(puller, hub, large_files):
    repo = hub.repos[NAME] = Repo(large_files)
    old = repo.revisions["main"]
    new_files = {"config.json": b'{"model_type": "qwen3_5", "n": 2}', "model.safetensors": b"new weights"}
    new = repo.commit("refs/pr/1", new_files)
    assert puller.report(f"{NAME}@refs/pr/1")["commit"] == new
    assert puller.report(NAME, "--revision", old)["commit"] == old
    assert {model["name"] for model in puller.models()} == {f"{NAME}@refs/pr/1", f"{NAME}@{old}"}
    assert "/api/models/Acme/Small-Model/revision/refs%2Fpr%2F1" in [path for _, _, path, _ in hub.requests]
    assert "has no revision nowhere (404)" in puller.fail("pull", f"{NAME}@nowhere")
    assert "give one" in puller.fail("pull", f"{NAME}@main", "--revision", "main")


def test_main_that_moves_between_two_pulls(puller, hub, large_files):
    repo = hub.repos[NAME] = Repo(large_files)
    first = puller.report(NAME)
    repo.commit("main", large_files | {"config.json": b'{"model_type": "other"}'})
    second = puller.report(NAME)
    assert second["commit"] != first["commit"]
    assert second["received_bytes"] == len(b'{"model_type": "other"}')  # the weights are the same blob
    assert [model["name"] for model in puller.models()] == [NAME, f"{NAME}@{first['commit']}"]


def wait_for(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_pull_goes_on_where_it_ended(puller, hub, large_files, end):
    hub.repos[NAME] = Repo(large_files)
    hub.delay_s = 0.02
    process = puller.start("pull", NAME)
    wait_for(lambda: hub.bytes_sent() > 8 * MIB)
    process.send_signal(end)
    process.communicate(timeout=30)
    assert process.returncode == -end
    assert puller.models()[0]["missing"] == "weights in safetensors"
    assert puller.files_in("refs") == []
    hub.delay_s = 0
    report = puller.report(NAME)
    size = len(large_files["model.safetensors"])
    received = {entry["name"]: entry["received_bytes"] for entry in report["files"]}
    assert received["config.json"] == 0 and 0 < received["model.safetensors"] < size - 3 * MIB
    with open(os.path.join(report["path"], "model.safetensors"), "rb") as file:
        assert file.read() == large_files["model.safetensors"]


def test_a_damaged_state_file_costs_time_only(puller, hub, large_files):
    hub.repos[NAME] = Repo(large_files)
    blobs = puller.repo_folder() / "blobs"
    blobs.mkdir(parents=True)
    blob = sha256(large_files["model.safetensors"])
    for state in (b"", b"ESPPULL1", b"ESPPULL1" + len(large_files["model.safetensors"]).to_bytes(8, "little") + b"\xff" * 64):
        (blobs / f"{blob}.espalier-part").write_bytes(b"old")
        (blobs / f"{blob}.espalier-state").write_bytes(state)
        assert puller.report(NAME)["received_bytes"] > 10 * MIB
        (blobs / blob).unlink()
        (blobs / git_sha1(large_files["config.json"])).unlink()


def test_connections_that_break_and_servers_that_are_busy_are_tried_again(puller, hub, large_files):
    hub.repos[NAME] = Repo(large_files)
    hub.drop_after = 3 * MIB
    hub.fail_status = [503, 429]
    report = puller.report(NAME)
    assert report["received_bytes"] == sum(len(data) for data in large_files.values())
    shutil.rmtree(puller.cache)
    hub.fail_status = [500] * 100
    assert "answers 500" in puller.fail("pull", NAME)


def test_a_store_without_ranges(puller, hub, large_files):
    hub.repos[NAME] = Repo(large_files)
    hub.has_ranges = False
    report = puller.report(NAME)
    with open(os.path.join(report["path"], "model.safetensors"), "rb") as file:
        assert file.read() == large_files["model.safetensors"]
    assert [name for name in puller.files_in("blobs") if "espalier" in name] == []


@pytest.mark.parametrize("name, kind", [("model.safetensors", "SHA-256"), ("config.json", "git SHA-1")])
def test_a_wrong_checksum(puller, hub, large_files, name, kind):
    hub.repos[NAME] = Repo(large_files)
    hub.corrupt = {name}
    error = puller.fail("pull", NAME)
    assert error.startswith("espalier: corrupt_data: ") and name in error and kind in error and "again" in error
    assert not [left for left in puller.files_in("blobs") if "espalier" in left]
    assert puller.files_in("refs") == []
    hub.corrupt = set()
    puller.run("pull", NAME)


def test_a_file_that_changes_in_between(puller, hub, large_files):
    repo = hub.repos[NAME] = Repo(large_files)
    hub.change_etag = "model.safetensors"
    assert "changed meanwhile" in puller.fail("pull", NAME)
    hub.change_etag = None
    # The store cuts the file short.
    repo.announced["model.safetensors"] = (sha256(large_files["model.safetensors"]), 20 * MIB)
    assert "changed meanwhile" in puller.fail("pull", NAME)
    repo.announced.clear()
    # Interrupted, then replaced under the same name: the unfinished part of the old file is not mixed in.
    hub.delay_s = 0.02
    process = puller.start("pull", NAME)
    wait_for(lambda: hub.bytes_sent() > 4 * MIB)
    process.kill()
    process.communicate()
    hub.delay_s = 0
    replaced = random.Random(2).randbytes(10 * MIB + 12345)
    repo.commit("main", large_files | {"model.safetensors": replaced})
    report = puller.report(NAME)
    with open(os.path.join(report["path"], "model.safetensors"), "rb") as file:
        assert file.read() == replaced


def test_two_pulls_at_once_fetch_every_byte_once(puller, hub, large_files):
    hub.repos[NAME] = Repo(large_files)
    hub.delay_s = 0.2
    first = puller.start("pull", NAME)
    wait_for(lambda: hub.bytes_sent() > 0)
    second = puller.start("pull", NAME)
    wait_for(lambda: len([1 for _, method, path, _ in hub.requests if method == "HEAD" and path.endswith(".safetensors")]) == 2)
    time.sleep(0.3)
    hub.delay_s = 0
    outputs = [process.communicate(timeout=60) for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0]
    assert "another process is fetching model.safetensors" in outputs[1][1]
    assert hub.bytes_sent() == len(large_files["model.safetensors"])


def test_the_token_goes_to_the_hub_and_nobody_else(puller, hub, large_files):
    repo = hub.repos[NAME] = Repo(large_files)
    repo.private_token = "hf_secret"
    assert "or set HF_TOKEN" in puller.fail("pull", NAME)
    puller.run("pull", NAME, environment={"HF_TOKEN": "hf_secret"})
    shutil.rmtree(puller.cache)
    (puller.home / "token").write_text("hf_secret\n")  # as `hf auth login` leaves it
    puller.run("pull", NAME)
    assert {headers.get("Authorization") for server, _, _, headers in hub.requests if server == "store"} == {None}
    assert "Bearer hf_secret" in {headers.get("Authorization") for server, _, _, headers in hub.requests if server == "hub"}


def test_refusals_say_what_to_do(puller, hub, large_files):
    repo = hub.repos[NAME] = Repo(large_files)
    error = puller.fail("pull", "Acme/Nothing")
    assert "401" in error and "check the name" in error and "HF_TOKEN" in error
    error = puller.fail("pull", "Acme/Nothing", environment={"HF_TOKEN": "some"})
    assert "no model Acme/Nothing" in error and "404" in error
    repo.gated_token = "good"
    error = puller.fail("pull", NAME)
    assert "gated (401)" in error and f"{hub.url}/{NAME}" in error and "set HF_TOKEN" in error
    error = puller.fail("pull", NAME, environment={"HF_TOKEN": "other"})
    assert "gated (403)" in error and "account of your token" in error
    puller.run("pull", NAME, environment={"HF_TOKEN": "good"})


def test_a_disk_that_is_too_small_is_noticed_before_the_first_byte(puller, hub, large_files):
    repo = hub.repos[NAME] = Repo(large_files)
    repo.announced["model.safetensors"] = (sha256(b""), 1 << 50)
    error = puller.fail("pull", NAME)
    assert error.startswith("espalier: exhausted: ") and "1048576.0 GiB" in error and "HF_HOME" in error
    assert hub.bytes_sent() == 0


def test_a_disk_that_fills_up_keeps_what_came(puller, hub, large_files):
    hub.repos[NAME] = Repo(large_files)

    def limit_file_size():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (6 * MIB, 6 * MIB))

    error = puller.fail("pull", NAME, "--connections", "1", preexec_fn=limit_file_size)
    assert error.startswith("espalier: exhausted: ") and "make room" in error
    report = puller.report(NAME)
    assert report["received_bytes"] <= len(large_files["model.safetensors"]) - 4 * MIB


@pytest.mark.parametrize("names", [["../outside"], ["/etc/passwd"], ["a//b"], ["a/../../b"], ["a\nb"], [""]])
def test_names_that_lead_elsewhere_are_refused(puller, hub, large_files, names):
    repo = hub.repos[NAME] = Repo(large_files)
    repo.extra_names = names
    assert "refused" in puller.fail("pull", NAME)
    assert not puller.cache.exists()


@pytest.mark.parametrize("name", ["", "/", "a/b/c", "../x", "a/..", "a b", "x/-y", "a--b", "a/b:", "a/b:../c", "a/b@", "a/b@../c"])
def test_arguments_that_are_no_names(puller, hub, name):
    assert "espalier: invalid_input: " in puller.fail("pull", name)
    assert hub.requests == []


def test_checksums_that_are_no_file_names_are_refused(puller, hub, large_files):
    repo = hub.repos[NAME] = Repo(large_files)
    repo.announced["model.safetensors"] = ("../../../evil", 10)
    assert "no usable ETag" in puller.fail("pull", NAME)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_without_a_network(puller, hub, large_files):
    hub.repos[NAME] = Repo(large_files)
    nobody = f"http://127.0.0.1:{free_port()}"
    error = puller.fail("pull", NAME, environment={"HF_ENDPOINT": nobody})
    assert error.startswith("espalier: device: ") and "offline" in error and "espalier models" in error
    error = puller.fail("pull", NAME, environment={"HF_ENDPOINT": "http://no-such-host.invalid"})
    assert "no-such-host.invalid" in error
    proxy = nobody.replace("http://", "http://user:hidden@")
    error = puller.fail("pull", NAME, environment={"http_proxy": proxy, "HF_ENDPOINT": "http://hub.invalid"})
    assert "proxy" in error and "http_proxy=" in error and "no_proxy" in error and "hidden" not in error
    assert "HF_ENDPOINT" in puller.fail("pull", NAME, environment={"HF_ENDPOINT": "ftp://x"})
    assert "HF_HUB_OFFLINE" in puller.fail("pull", NAME, environment={"HF_HUB_OFFLINE": "1"})
    puller.run("pull", NAME)
    hub.requests.clear()
    assert json.loads(puller.run("pull", NAME, "--json", environment={"HF_HUB_OFFLINE": "1"}).out)["received_bytes"] == 0
    assert hub.requests == []


def test_a_proxy_is_used(puller, hub, large_files):
    """The hub as its own proxy: requests to it arrive with the whole address."""
    hub.repos[NAME] = Repo(large_files)
    handler = hub.servers[0].RequestHandlerClass
    parse, seen = handler.parse_request, []

    def watched(self):
        is_read = parse(self)
        seen.append(self.path)
        self.path = self.path.removeprefix("http://hub.invalid")
        return is_read

    handler.parse_request = watched
    puller.run("pull", NAME,
               environment={"http_proxy": hub.url, "no_proxy": "127.0.0.1", "HF_ENDPOINT": "http://hub.invalid"})
    assert seen[0] == f"http://hub.invalid/api/models/{NAME}/revision/main"


def test_models_of_other_tools_are_listed(puller, tmp_path):
    commit = "0123456789abcdef0123456789abcdef01234567"
    for name, config in (("models--org--plain", b"{}"), ("datasets--org--data", b"{}"), ("models--bad", None)):
        snapshot = puller.cache / name / "snapshots" / commit
        snapshot.mkdir(parents=True)
        (puller.cache / name / "refs").mkdir()
        (puller.cache / name / "refs" / "main").write_text(commit)
        if config is not None:
            (snapshot / "config.json").write_bytes(config)
    (puller.cache / "version.txt").write_text("1")
    assert [(model["name"], model["missing"]) for model in puller.models()] == [("org/plain", "weights in safetensors")]
    assert puller.run("models", environment={"HF_HOME": str(tmp_path / "none")}).out.splitlines()[-1].startswith("0 in ")
    assert "HF_HOME" in puller.fail("models", environment={"HF_HOME": "", "HOME": "", "XDG_CACHE_HOME": ""})
