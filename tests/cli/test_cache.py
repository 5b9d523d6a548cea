"""espalier cache ls|rm on directories made by hand: what is listed, what is refused, what is erased."""
import fcntl
import json
import os
import struct
import subprocess

import pytest

STATE_NAME = "0123456789abcdef-00000000000000aa.state"


@pytest.fixture()
def run_cache(espalier_bin, tmp_path):
    def run(*arguments, status=0, environment=None):
        result = subprocess.run([espalier_bin, "cache", *arguments], capture_output=True, text=True, timeout=60,
                                env={**os.environ, **(environment or {})})
        assert result.returncode == status, result.stderr
        return result

    return run


def listing(run_cache, folder):
    return json.loads(run_cache("ls", "--cache-dir", folder, "--json").stdout)


def test_a_folder_that_does_not_exist_is_empty(run_cache, tmp_path):
    folder = tmp_path / "none"
    assert "no conversations in" in run_cache("ls", "--cache-dir", folder).stdout
    assert listing(run_cache, folder) == {"directory": str(folder), "bytes": 0, "damaged_files": 0, "unreadable_files": 0,
                                          "unknown_files": 0, "conversations": []}
    run_cache("rm", "--all", "--cache-dir", folder)
    assert not folder.exists()


def test_the_default_folder_follows_the_environment(run_cache, tmp_path):
    out = run_cache("ls", environment={"XDG_CACHE_HOME": str(tmp_path)}).stdout
    assert str(tmp_path / "espalier" / "conversations") in out
    out = run_cache("ls", environment={"XDG_CACHE_HOME": "", "HOME": str(tmp_path)}).stdout
    assert str(tmp_path / ".cache" / "espalier" / "conversations") in out
    error = run_cache("ls", status=1, environment={"XDG_CACHE_HOME": "", "HOME": ""}).stderr
    assert error.startswith("espalier: invalid_input: ") and "--cache-dir" in error


def test_damaged_and_unknown_files_are_counted_and_erased_with_all(run_cache, tmp_path):
    (tmp_path / STATE_NAME).write_bytes(b"not a state at all, but long enough to be read")
    newer = b"ESPSTATE" + struct.pack("<IIQ", 99, 4096, 0)
    (tmp_path / STATE_NAME.replace("aa.", "bb.")).write_bytes(newer)
    (tmp_path / "notes.txt").write_text("mine")
    found = listing(run_cache, tmp_path)
    assert found["damaged_files"] == 1 and found["unknown_files"] == 1 and found["conversations"] == []
    out = run_cache("ls", "--cache-dir", tmp_path).stdout
    assert "1 damaged files" in out and "1 files of another version" in out
    run_cache("rm", "--all", "--cache-dir", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_rm_says_what_is_wrong(run_cache, tmp_path):
    run_cache("rm", "--cache-dir", tmp_path, status=2)
    run_cache("ls", "--no-such-flag", status=2)
    error = run_cache("rm", "abc", "--cache-dir", tmp_path, status=1).stderr
    assert 'no conversation "abc"' in error and "espalier cache ls" in error
    holder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert "in use by another process" in run_cache("rm", "--all", "--cache-dir", tmp_path, status=1).stderr
        assert listing(run_cache, tmp_path)["conversations"] == []  # looking is allowed
    finally:
        os.close(holder)
    (tmp_path / "file").write_text("")
    assert run_cache("ls", "--cache-dir", tmp_path / "file", status=1).stderr.count("\n") == 1
