"""What `cmake --install` and the Debian package put on a machine, and what the package's service does in a clean Debian.

The clean root is made by debootstrap once and kept beside the build as an archive. There is no systemd in it: the unit is verified, and
its command run by hand as its user, with its environment.
"""
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

START_SECONDS = 60
STATE = "var/lib/espalier"
# What any package's installation changes.
CHANGES = ("var/lib/dpkg", "var/log", "var/cache", "etc/passwd", "etc/group", "etc/shadow", "etc/gshadow", "etc/subuid", "etc/subgid",
           "var/lib/systemd", "proc", "dev", "run", "tmp")


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def build_dir(espalier_bin):
    folder = espalier_bin.resolve().parent
    if not (folder / "CPackConfig.cmake").exists():
        pytest.skip(f"{folder} is no build folder")
    return folder


def test_an_installation_elsewhere_finds_its_model(build_dir, tmp_path):
    prefix = tmp_path / "prefix"
    run("cmake", "--install", build_dir, "--prefix", prefix)
    installed = sorted(str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file())
    model = [f"share/espalier/model/{name}" for name in ("config.json", "model.safetensors", "self_test.json", "tokenizer.json")]
    assert {"bin/espalier", "share/man/man1/espalier.1", "share/bash-completion/completions/espalier", *model} <= set(installed)
    assert not [name for name in installed if "systemd" in name or "etc" in name], "the service is the package's"
    names = run(prefix / "bin" / "espalier", "models", "--names", env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
    assert names == "espalier-demo\n"
    inspected = run(prefix / "bin" / "espalier", "inspect", "--json", env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
    assert json.loads(inspected)


@pytest.fixture(scope="module")
def package(build_dir, tmp_path_factory):
    if not shutil.which("dpkg-shlibdeps"):
        pytest.skip("no dpkg-shlibdeps: install dpkg-dev")
    folder = tmp_path_factory.mktemp("package")
    run("cpack", "--config", build_dir / "CPackConfig.cmake", "-G", "DEB", "-B", folder)
    found = list(folder.glob("espalier_*.deb"))
    assert len(found) == 1
    return found[0]


def dependencies(package):
    """Names only; dpkg checks the versions."""
    field = run("dpkg-deb", "-f", package, "Depends")
    return [entry.split()[0] for entry in field.split(",")]


def real_packages(names):
    """Those that provide the virtual ones among them on this machine, which the program was built on."""
    providers = {}
    for line in run("dpkg-query", "-W", "-f", "${Package}|${Provides}\n").splitlines():
        package, provides = line.split("|", 1)
        providers |= {entry.split()[0]: package for entry in provides.split(",") if entry.strip()} | {package: package}
    return sorted({providers.get(name, name) for name in names})


def test_systemd_understands_the_unit(espalier_bin, source_dir, tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze")
    unit = (source_dir / "packaging" / "espalier.service").read_text()
    copy = tmp_path / "espalier.service"
    copy.write_text(unit.replace("/usr/bin/espalier", str(espalier_bin)))
    assert run("systemd-analyze", "verify", "--man=no", copy) == ""
    copy.write_text(copy.read_text().replace("Restart=on-failure", "Restart=on-a-whim"))
    assert "on-a-whim" in subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, check=False).stderr


@pytest.mark.full
def test_the_package_says_what_it_needs(package):
    needed = dependencies(package)
    assert "adduser" in needed and [name for name in needed if name.startswith("libcurl4")] and "libc6" in needed
    assert run("dpkg-deb", "-f", package, "Maintainer").strip()
    listing = run("dpkg-deb", "-c", package)
    assert all(line.split()[1] == "root/root" for line in listing.splitlines())


def make_root(archive, packages):
    """An archive of a minimal Debian 12 with these packages."""
    folder = archive.parent / "root"
    shutil.rmtree(folder, ignore_errors=True)
    made = subprocess.run(["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", "bookworm", str(folder),
                           os.environ.get("ESPALIER_DEBIAN_MIRROR", "http://deb.debian.org/debian")],
                          capture_output=True, text=True, check=False)
    if made.returncode == 0:
        run("tar", "-C", folder, "-cf", archive, ".")
    shutil.rmtree(folder, ignore_errors=True)
    if made.returncode != 0:
        pytest.skip(f"debootstrap could not make a clean root: {(made.stdout + made.stderr).strip().splitlines()[-1]}")


@pytest.fixture()
def clean_root(package, build_dir, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("a clean root needs root rights")
    if not shutil.which("debootstrap"):
        pytest.skip("no debootstrap")
    packages = real_packages(dependencies(package))
    stamp = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:12]
    archive = build_dir / "clean-root" / f"{stamp}.tar"
    archive.parent.mkdir(exist_ok=True)
    if not archive.exists():
        make_root(archive, packages)
    root = tmp_path / "root"
    root.mkdir()
    run("tar", "-C", root, "-xf", archive)
    root.chmod(0o755)
    mounted = subprocess.run(["mount", "-t", "proc", "proc", root / "proc"], capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no mount allowed here: {mounted.stderr.strip()}")
    yield root
    run("umount", root / "proc")
    shutil.rmtree(root)  # ten thousand files that pytest would keep


def in_root(root, *command):
    return run("chroot", root, "/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/",
               "DEBIAN_FRONTEND=noninteractive", *command)


def files_of(root):
    found = set()
    for folder, folders, names in os.walk(root):
        relative = os.path.relpath(folder, root)
        folders[:] = [name for name in folders if not os.path.normpath(os.path.join(relative, name)).startswith(CHANGES)]
        found |= {os.path.normpath(os.path.join(relative, name)) for name in (*folders, *names)}
    return {name for name in found if not name.startswith(CHANGES)}


class Service:
    """The unit's command, as its user, with its environment."""

    def __init__(self, root):
        unit = (root / "usr/lib/systemd/system/espalier.service").read_text()
        setting = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and not line.startswith("#"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = ["chroot", f"--userspec={setting['User']}:{setting['Group']}", root, "/usr/bin/env", "-i", "-C",
                   setting["WorkingDirectory"], *shlex.split(setting["Environment"]), f"ESPALIER_PORT={self.port}",
                   "ESPALIER_CACHE_RAM=256M", *shlex.split(setting["ExecStart"])]
        self.log = root.parent / "service.log"
        with self.log.open("a") as log:
            self.process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log, umask=int(setting["UMask"], 8))
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready():
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=10) as answer:
                return json.load(answer)["status"] == "ready"
        except urllib.error.URLError:
            return False

    def owner(self):
        return os.stat(f"/proc/{self.process.pid}").st_uid

    def ask(self, messages):
        body = json.dumps({"messages": messages, "max_tokens": 8, "temperature": 0}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/chat/completions", body)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=60) == 0, self.log.read_text()


@pytest.mark.full
def test_install_serve_restart_remove(clean_root, package):
    root = clean_root
    before = files_of(root)
    shutil.copy(package, root / "tmp" / "espalier.deb")
    in_root(root, "dpkg", "-i", "/tmp/espalier.deb")
    assert in_root(root, "espalier", "models", "--names") == "espalier-demo\n"
    user = re.search(r"^espalier:x:(\d+):(\d+):[^:]*:/var/lib/espalier:(\S*)$", (root / "etc/passwd").read_text(), re.MULTILINE)
    assert user and int(user[1]) != 0 and user[3] == "/usr/sbin/nologin"
    state, settings = (root / STATE).stat(), (root / "etc/espalier/espalier.toml").stat()
    assert (state.st_uid, state.st_mode & 0o777) == (int(user[1]), 0o750)
    assert (settings.st_uid, settings.st_gid, settings.st_mode & 0o777) == (0, int(user[2]), 0o640), "it may hold a key"

    messages = [{"role": "user", "content": "The test ./tests/test_amber_river.py fails. Fix the code. " * 40}]
    service = Service(root)
    assert service.owner() == int(user[1])
    first = service.ask(messages)
    service.stop()
    kept = [path for path in (root / STATE / "conversations").rglob("*") if path.is_file()]
    assert kept and all(path.stat().st_uid == int(user[1]) and path.stat().st_mode & 0o077 == 0 for path in kept)
    messages += [first["choices"][0]["message"], {"role": "user", "content": "Go on."}]
    service = Service(root)
    again = service.ask(messages)
    service.stop()
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > first["usage"]["prompt_tokens"] // 2

    in_root(root, "dpkg", "-r", "espalier")
    left = files_of(root) - before
    assert left and all(name.startswith((STATE, "etc/espalier")) for name in left), left
    in_root(root, "dpkg", "-P", "espalier")
    assert files_of(root) == before
    assert "espalier" not in (root / "etc/passwd").read_text()
