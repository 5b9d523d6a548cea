"""./dev demo: the built-in model, a server, the benchmark client and a table, from a clean tree's files alone."""
import json
import os
import shutil
import subprocess
import sys


def test_demo_shows_the_built_in_model_at_work(source_dir, espalier_bin, tmp_path):
    figures = tmp_path / "figures.json"
    command = [sys.executable, source_dir / "scripts" / "demo.py", "--json", figures]
    environment = {**os.environ, "ESPALIER_BIN": str(espalier_bin)}
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        out, err = demo.communicate(timeout=300)
    finally:
        demo.terminate()  # it stops its server
        demo.wait()
    assert demo.returncode == 0, err
    assert "test_0" in out and "single-turn requests" in out
    result = json.loads(figures.read_text())
    assert result["iou"] >= 0.85
    assert result["accuracy"] >= 0.88
    assert result["acceptance_depth1"] >= 0.85
    assert result["cached_share"] > 0.7
    assert result["tokens_per_s"] > 0


def test_a_command_without_a_model_uses_the_built_in_one(espalier_bin, source_dir, tmp_path):
    layout = tmp_path / "prefix"
    for folder in ("bin", "share/espalier"):
        (layout / folder).mkdir(parents=True)
    shutil.copy(espalier_bin, layout / "bin" / "espalier")
    (layout / "share" / "espalier" / "model").symlink_to(source_dir / "demo" / "model")
    command = [layout / "bin" / "espalier", "run", "The test ./tests/test_amber_river.py fails. Fix the code.", "--temp", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "built-in demo model" in done.stderr
    assert done.stdout.strip(), "it says something"
