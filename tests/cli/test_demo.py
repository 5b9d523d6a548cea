"""./dev demo on the first turns: a server, the benchmark client and a table, from a clean tree's files alone."""
import json
import os
import subprocess
import sys


def test_demo_replays_both_conversations(source_dir, espalier_bin, tmp_path):
    figures = tmp_path / "figures.json"
    command = [sys.executable, source_dir / "scripts" / "demo.py", "--turns", "1-3", "--json", figures]
    environment = {**os.environ, "ESPALIER_BIN": str(espalier_bin)}
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        out, err = demo.communicate(timeout=300)
    finally:
        demo.terminate()  # it stops its server
        demo.wait()
    assert demo.returncode == 0, err
    assert "psf__requests-1921" in out and "pallets__flask-5014" in out
    assert "The weights are random" in out
    result = json.loads(figures.read_text())
    assert result["turns"] == 4
    assert result["output_tokens"] > 0 and result["tokens_per_s"] > 0
    # Requests are at turns 1 and 3 (2 is the recorded reply): the second of each conversation continues the first.
    assert 0.3 < result["cached_share"] < 0.9
