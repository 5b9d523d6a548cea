"""The model against the official implementation: logits, layers, states, trees, MTP, greedy text. See model/README.md for the data."""
import json
import subprocess

import numpy as np
import pytest
from reference import check_close, check_logits

CHECKPOINTS = ["tiny_a", "tiny_b"]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_logits_at_every_length(name, reference, evaluate, tmp_path):
    checkpoint, gold = reference(name)
    tokens = json.loads((gold / "tokens.json").read_text())
    out = tmp_path / "logits.npy"
    for length in (1, 5, 65):
        evaluate("logits", checkpoint, tokens[f"len{length}"], "--out", out)
        check_logits(np.load(out), np.load(gold / f"logits_len{length}.npy"))
    evaluate("logits", checkpoint, tokens["len200"], "--out", out)
    check_logits(np.load(out)[-40:], np.load(gold / "logits_len200_last40.npy"))


def test_the_last_of_700_positions(reference, evaluate, tmp_path):
    checkpoint, gold = reference("tiny_a")
    tokens = json.loads((gold / "tokens.json").read_text())
    evaluate("logits", checkpoint, tokens["len700"], "--out", tmp_path / "logits.npy", "--positions", "last")
    check_logits(np.load(tmp_path / "logits.npy"), np.load(gold / "logits_last_len700.npy"))


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_chunks_and_threads_change_no_bit(name, reference, evaluate, tmp_path):
    checkpoint, gold = reference(name)
    ids = json.loads((gold / "tokens.json").read_text())["len200"]
    out = tmp_path / "logits.npy"
    evaluate("logits", checkpoint, ids, "--out", out)
    whole = out.read_bytes()
    for options in (("--chunks", "7,1,64"), ("--chunks", "1"), ("--threads", "1"), ("--threads", "5", "--chunks", "33,100")):
        evaluate("logits", checkpoint, ids, "--out", out, *options)
        assert out.read_bytes() == whole, options


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_residual_stream_of_every_layer(name, reference, evaluate, tmp_path):
    checkpoint, gold = reference(name)
    ids = json.loads((gold / "tokens.json").read_text())["len65"]
    want = np.load(gold / "hidden_len65.npy")
    out = tmp_path / "hidden.npy"
    evaluate("layers", checkpoint, ids, "--out", out)
    check_close(np.load(out), want)
    for layer in (0, want.shape[0] - 2):
        np.save(tmp_path / "in.npy", want[layer])
        evaluate("layers", checkpoint, ids, "--layer", layer, "--in", tmp_path / "in.npy", "--out", out)
        check_close(np.load(out), want[layer + 1])


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_states(name, reference, evaluate, tmp_path):
    checkpoint, gold = reference(name)
    evaluate("state", checkpoint, json.loads((gold / "tokens.json").read_text())["len65"], "--out-dir", tmp_path)
    check_close(np.load(tmp_path / "conv.npy")[..., 1:], np.load(gold / "state_len65_conv.npy")[..., 1:])
    recurrent = np.load(gold / "state_len65_recurrent.npy")
    check_close(np.load(tmp_path / "recurrent.npy")[: len(recurrent)], recurrent)
    for kind in ("k", "v"):
        check_close(np.load(tmp_path / f"{kind}.npy"), np.load(gold / f"state_len65_{kind}.npy"))


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_tree_and_commit(name, reference, evaluate, tmp_path):
    checkpoint, gold = reference(name)
    tokens = json.loads((gold / "tokens.json").read_text())
    tree = json.loads((gold / "tree.json").read_text())
    tree_file = tmp_path / "tree.json"
    tree_file.write_text(json.dumps({"tokens": tree["tokens"], "parents": tree["parents"]}))
    out = tmp_path / "tree.npy"
    evaluate("tree", checkpoint, tokens["tree_prompt"], "--tree", tree_file, "--out", out)
    check_logits(np.load(out), np.load(gold / "tree_logits.npy"))
    want = np.load(gold / "tree_after_greedy_logits.npy")
    then = tmp_path / "then.json"
    then.write_text(json.dumps(tree["tokens_after_greedy"][: len(want)]))
    path = ",".join(map(str, tree["accepted_path_greedy"]))
    evaluate("tree", checkpoint, tokens["tree_prompt"], "--tree", tree_file, "--commit", path, "--then", then, "--out", out)
    check_logits(np.load(out), want)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_mtp_prefill_and_drafts(name, reference, evaluate, tmp_path):
    checkpoint, gold = reference(name)
    ids = json.loads((gold / "tokens.json").read_text())["mtp_prompt"]
    evaluate("mtp", checkpoint, ids, "--steps", 8, "--out", tmp_path / "mtp.npy")
    check_logits(np.load(tmp_path / "mtp.npy"), np.load(gold / "mtp_prefill_logits.npy"))
    drafts = np.load(tmp_path / "mtp.draft.npy")
    check_logits(drafts, np.load(gold / "mtp_draft_logits.npy"))
    facts = json.loads((gold / "mtp.json").read_text())
    assert drafts.argmax(-1).tolist() == facts["draft_ids"]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_greedy_text(name, reference, evaluate):
    checkpoint, gold = reference(name)
    prompt = json.loads((gold / "tokens.json").read_text())["greedy_prompt"]
    want = json.loads((gold / "greedy.json").read_text())["ids"]
    assert len(want) == 64
    assert json.loads(evaluate("greedy", checkpoint, prompt, "-n", 64)) == want
    answer = json.loads(evaluate("greedy", checkpoint, prompt, "-n", 10, "--json"))
    assert answer["ids"] == want[:10]
    sampled = [json.loads(evaluate("sample", checkpoint, prompt, "-n", 20, "--seed", seed)) for seed in (1, 1, 2)]
    assert sampled[0] == sampled[1] != sampled[2]


def test_damaged_checkpoints_give_one_line(reference, espalier_bin, tmp_path):
    checkpoint, gold = reference("tiny_b")
    ids = tmp_path / "ids.json"
    ids.write_text("[1, 2, 3]")
    whole = (checkpoint / "model.safetensors").read_bytes()
    damage = {
        "truncated": whole[:-100],
        "header cut": whole[:50],
        "length": b"\xff" * 8 + whole[8:],
        "bit": whole[:20] + bytes([whole[20] ^ 0x10]) + whole[21:],
        "empty": b"",
    }
    for kind, data in damage.items():
        folder = tmp_path / kind.replace(" ", "_")
        folder.mkdir()
        (folder / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
        (folder / "model.safetensors").write_bytes(data)
        line = [espalier_bin, "eval", "logits", folder, "--ids", ids, "--out", tmp_path / "x.npy"]
        done = subprocess.run([str(part) for part in line], capture_output=True, text=True, check=False)
        assert done.returncode == 1, kind
        assert done.stderr.count("\n") == 1 and done.stderr.startswith("espalier: "), (kind, done.stderr)
        assert "model.safetensors" in done.stderr, (kind, done.stderr)
