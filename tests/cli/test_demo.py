"""./dev demo: the built-in model, a server, the benchmark client and a table, from a clean tree's files alone."""
import json
import os
import re
import shutil
import subprocess
import sys

import pytest


def shape(text):
    """Without numbers and column widths."""
    return re.sub(r"\s+", " ", re.sub(r"\d[\d,.]*", "#", text)).strip()


def run_demo(source_dir, espalier_bin, *arguments):
    command = [sys.executable, source_dir / "scripts" / "demo.py", *arguments]
    environment = {**os.environ, "ESPALIER_BIN": str(espalier_bin)}
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        out, err = demo.communicate(timeout=300)
    finally:
        demo.terminate()  # it stops its server
        demo.wait()
    assert demo.returncode == 0, err
    return out


@pytest.mark.full
def test_the_whole_test_set(source_dir, espalier_bin, tmp_path):
    run_demo(source_dir, espalier_bin, "--full", "--json", tmp_path / "figures.json")
    result = json.loads((tmp_path / "figures.json").read_text())
    assert result["turns"] > 200 and result["iou"] >= 0.85 and result["accuracy"] >= 0.88


def test_demo_shows_the_built_in_model_at_work(source_dir, espalier_bin, tmp_path):
    figures = tmp_path / "figures.json"
    out = run_demo(source_dir, espalier_bin, "--json", figures)
    readme = (source_dir / "README.md").read_text(encoding="utf-8")
    sample = next(block for block in readme.split("```\n") if block.startswith("conversation "))
    shapes = [shape(line) for line in out.splitlines()]
    for line in sample.strip().splitlines():
        assert shape(line) in shapes, f"README shows {line}, the demo prints {out}"
    pictures = [tmp_path / "turns.svg", source_dir / "docs" / "turns.svg"]
    turns = source_dir / "build" / "demo" / "report" / "turns.csv"
    subprocess.run([sys.executable, "-m", "demo.eval.picture", turns, "test_3", pictures[0]], check=True, cwd=source_dir)
    assert shape(pictures[0].read_text()) == shape(pictures[1].read_text())
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
