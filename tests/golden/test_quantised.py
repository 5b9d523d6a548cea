"""Quantised checkpoints against the official implementations: exact dequantisation, linear modules in both modes, whole models."""
import json
import shutil

import numpy as np
import pytest
from reference import check_logits, relative_rms

CHECKPOINTS = ["tiny_a-nvfp4", "tiny_b-nvfp4", "tiny_b-fp8", "tiny_b-mixed"]
WITH_KV = ["tiny_a-nvfp4", "tiny_b-nvfp4", "tiny_b-mixed"]


def read_safetensors(path):
    """{name: (dtype, shape, bytes)} of one file."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    return {
        name: (info["dtype"], info["shape"], data[8 + size + info["data_offsets"][0] : 8 + size + info["data_offsets"][1]])
        for name, info in header.items()
        if name != "__metadata__"
    }


def write_safetensors(path, tensors):
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_dequantised_weights_are_exact(name, reference, evaluate):
    checkpoint, gold = reference(name)
    modules = json.loads((gold / "dequant.json").read_text())["modules"]
    assert len(modules) >= 8
    for module, facts in modules.items():
        n, k = facts["shape"]
        # A unit row picks one column of the weight: sums of exact zeros and one product by one.
        weight = np.ascontiguousarray(evaluate.linear(checkpoint, module, np.eye(k), "--acts", "a32").T)
        assert weight.shape == (n, k)
        # Equal up to the sign of zero: -0 times one, added to +0, is +0.
        assert np.array_equal(weight[: facts["rows_in_file"]], np.load(gold / facts["file"])), module
        assert np.abs(weight).max() == np.float32(facts["abs_max"]), module
        assert abs(weight.astype(np.float64).sum() - facts["sum_fp64"]) <= 1e-6 * max(1, abs(facts["sum_fp64"])), module


@pytest.mark.parametrize("mode, suffix", [("a32", "y_w"), ("ckpt", "y_wa")])
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_linear_modules(name, mode, suffix, reference, evaluate):
    checkpoint, gold = reference(name)
    modules = json.loads((gold / "dequant.json").read_text())["modules"]
    inputs = sorted(gold.glob("linear_*_x.npy"))
    assert len(inputs) >= 10
    for x in inputs:
        kind = x.name[len("linear_") : -len("_x.npy")]
        module = next(m for m in modules if (m == kind or m.endswith(f".{kind}")) and not m.startswith("mtp"))
        want = np.load(gold / f"linear_{kind}_{suffix}.npy")
        assert relative_rms(evaluate.linear(checkpoint, module, np.load(x), "--acts", mode), want) <= 1e-6, module


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_weights_only_logits(name, reference, evaluate):
    checkpoint, gold = reference(name)
    for length in (5, 65):
        got = evaluate.logits(checkpoint, reference.tokens(name, f"len{length}"))
        check_logits(got, np.load(gold / f"logits_w_len{length}.npy"))


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_quantised_activations_layer_by_layer(name, reference, evaluate, tmp_path):
    checkpoint, gold = reference(name)
    hidden = np.load(gold / "hidden_wa_first16.npy")
    for layer in range(len(hidden) - 1):
        np.save(tmp_path / "in.npy", hidden[layer])
        evaluate.run("layers", checkpoint, "--layer", layer, "--in", tmp_path / "in.npy", "--out", tmp_path / "out.npy", "--acts", "ckpt",
                     "--kv-type", "f32")
        assert relative_rms(np.load(tmp_path / "out.npy"), hidden[layer + 1]) <= 1e-4, layer


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_quantised_activations_whole_model(name, reference, evaluate):
    checkpoint, gold = reference(name)
    got = evaluate.logits(checkpoint, reference.tokens(name, "len5"), "--acts", "ckpt", "--kv-type", "f32")
    want = np.load(gold / "logits_wa_len5.npy")
    # No value of these five rows lies near a rounding boundary, except one in row 4 of tiny_b-fp8.
    assert np.abs(got - want)[:4].max() <= 1e-3
    assert relative_rms(got, want) <= 2e-2


@pytest.mark.parametrize("name", WITH_KV)
def test_fp8_keys_and_values(name, reference, evaluate):
    checkpoint, gold = reference(name)
    ids = reference.tokens(name, "len65")
    weights_only = gold / "logits_w_kv8_len65.npy"
    if weights_only.exists():
        check_logits(evaluate.logits(checkpoint, ids, "--kv-type", "fp8")[49:], np.load(weights_only))
    with_acts = np.load(gold / "logits_wa_kv8_len65.npy")
    got = evaluate.logits(checkpoint, ids, "--acts", "ckpt", "--kv-type", "fp8")[49:]
    assert np.abs(got - with_acts).max() <= 2.5
    assert np.sqrt(((got - with_acts) ** 2).mean()) <= 0.3


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_every_mode_is_really_used(name, reference, evaluate):
    """The modes differ by about the noise they stand for: not by nothing, not by nonsense."""
    checkpoint, _ = reference(name)
    ids = reference.tokens(name, "len65")
    exact = evaluate.logits(checkpoint, ids)
    noise = {mode: relative_rms(evaluate.logits(checkpoint, ids, "--acts", mode, "--kv-type", "f32"), exact) for mode in ("ckpt", "a8", "a16")}
    assert 1e-4 < noise["a16"] < 0.05, noise
    assert 1e-3 < noise["a8"] < 0.2, noise
    assert 5e-3 < noise["ckpt"] < 0.8, noise
    if name.endswith("nvfp4"):
        assert noise["a16"] < noise["a8"] < noise["ckpt"], noise
    kv = relative_rms(evaluate.logits(checkpoint, ids, "--kv-type", "fp8"), exact)
    assert 1e-4 < kv < 0.1


@pytest.mark.parametrize("mode", ["a32", "a16", "a8", "ckpt"])
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_chunks_and_threads_change_no_bit(name, mode, reference, evaluate, tmp_path):
    checkpoint, _ = reference(name)
    ids = reference.tokens(name, "len65")
    evaluate.logits(checkpoint, ids, "--acts", mode)
    whole = (tmp_path / "logits.npy").read_bytes()
    for options in (("--chunks", "1"), ("--chunks", "7,1,64"), ("--threads", "3", "--chunks", "16,2,33")):
        evaluate.logits(checkpoint, ids, "--acts", mode, *options)
        assert (tmp_path / "logits.npy").read_bytes() == whole, options


@pytest.mark.parametrize("mode", ["a8", "ckpt"])
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_tree_is_its_chains(name, mode, reference, evaluate, tmp_path):
    checkpoint, _ = reference(name)
    ids = reference.tokens(name, "len65")
    parents = [-1, 0, 1, 1, 2, 3, 0]
    tokens = [ids[i * 5] for i in range(len(parents))]
    (tmp_path / "tree.json").write_text(json.dumps({"tokens": tokens, "parents": parents}))
    prompt = ids[:61]
    evaluate("tree", checkpoint, prompt, "--tree", tmp_path / "tree.json", "--out", tmp_path / "tree.npy", "--acts", mode)
    tree = np.load(tmp_path / "tree.npy")
    for path in ([0, 1, 2, 4], [0, 1, 3, 5], [0, 6]):
        chain = evaluate.logits(checkpoint, prompt + [tokens[node] for node in path], "--acts", mode, "--chunks", "50,1")
        assert (chain[len(prompt) :] == tree[path]).all(), path


@pytest.mark.parametrize("name", ["tiny_b-nvfp4", "tiny_b-fp8"])
def test_quantised_mtp_head(name, reference, evaluate, tmp_path):
    checkpoint, gold = reference(name)
    facts = json.loads((gold / "mtp.json").read_text())
    evaluate("mtp", checkpoint, facts["prompt"], "--next", facts["next_token"], "--steps", 2, "--out", tmp_path / "mtp.npy")
    check_logits(np.load(tmp_path / "mtp.npy")[-8:], np.load(gold / "mtp_prefill_logits_w_last8.npy"))


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_greedy_text_with_exact_weights(name, reference, evaluate):
    checkpoint, gold = reference(name)
    facts = json.loads((gold / "greedy_w.json").read_text())
    assert json.loads(evaluate("greedy", checkpoint, facts["prompt"], "-n", len(facts["ids"]))) == facts["ids"]


def test_the_two_spellings_of_nvfp4_give_the_same_bytes(reference, evaluate, tmp_path):
    """compressed-tensors names the same codes and block scales differently and stores second-level scales as divisors."""
    checkpoint, _ = reference("tiny_b-nvfp4")
    other = tmp_path / "compressed-tensors"
    other.mkdir()
    tensors = {}
    for name, (dtype, shape, data) in read_safetensors(checkpoint / "model.safetensors").items():
        if name.startswith("mtp."):
            continue
        stem = name.rsplit(".", 1)[0]
        if dtype == "U8":
            tensors[stem + ".weight_packed"] = (dtype, shape, data)
        elif name.endswith(".weight_scale_2") or name.endswith(".input_scale"):
            divisor = (np.float32(1) / np.frombuffer(data, "<f4")).astype("<f4")
            suffix = ".weight_global_scale" if name.endswith("_2") else ".input_global_scale"
            tensors[stem + suffix] = ("F32", [1], divisor.tobytes())
        elif name.endswith("_proj.k_scale") or name.endswith("_proj.v_scale"):
            tensors[stem.rsplit(".", 1)[0] + "." + name.rsplit(".", 1)[1]] = (dtype, shape, data)
        else:
            tensors[name] = (dtype, shape, data)
    write_safetensors(other / "model.safetensors", tensors)
    config = json.loads((checkpoint / "config.json").read_text())
    config["mtp_num_hidden_layers"] = 0
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "nvfp4-pack-quantized",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True, "dynamic": False},
                "input_activations": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True,
                                      "dynamic": "local"},
            }
        },
        "ignore": [],
        "kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False, "symmetric": True, "strategy": "tensor"},
    }
    (other / "config.json").write_text(json.dumps(config))
    shutil.copy(checkpoint / "generation_config.json", other)
    ids = reference.tokens("tiny_b-nvfp4", "len65")
    for mode in ("a32", "ckpt"):
        assert (evaluate.logits(checkpoint, ids, "--acts", mode) == evaluate.logits(other, ids, "--acts", mode)).all(), mode
