"""`espalier quantize` against ModelOpt's own output and against an independent reading of the files. See quantize/README.md."""
import hashlib
import json
import os
import struct
import subprocess
import tarfile

import numpy as np
import pytest

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def e4m3_table():
    values = []
    for code in range(256):
        exponent, mantissa = code >> 3 & 15, code & 7
        magnitude = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
        magnitude = float("nan") if code & 0x7F == 0x7F else magnitude
        values.append(-magnitude if code & 0x80 else magnitude)
    return np.array(values, np.float32)


E4M3 = e4m3_table()


def read_tensors(folder):
    """name -> (type, shape, bytes) of every safetensors file of a folder."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        for name, info in json.loads(data[8 : 8 + length]).items():
            if name != "__metadata__":
                begin, end = info["data_offsets"]
                tensors[name] = (info["dtype"], info["shape"], data[8 + length + begin : 8 + length + end])
    return tensors


def floats(tensor):
    kind, shape, data = tensor
    if kind == "BF16":
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
    assert kind == "F32", kind
    return np.frombuffer(data, np.float32).reshape(shape)


def codes_e4m3(tensor):
    assert tensor[0] == "F8_E4M3"
    return E4M3[np.frombuffer(tensor[2], np.uint8)].reshape(tensor[1])


def dequantise(tensors, module):
    """The float32 weight of a module, whatever its format. numpy only: shares nothing with the program."""
    weight = tensors[module + ".weight"]
    if weight[0] == "U8":
        packed = np.frombuffer(weight[2], np.uint8).reshape(weight[1])
        codes = np.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1)
        values = np.where(codes & 8, -E2M1[codes & 7], E2M1[codes & 7])
        scales = np.repeat(codes_e4m3(tensors[module + ".weight_scale"]), 16, 1)
        return values * scales * floats(tensors[module + ".weight_scale_2"])
    if weight[0] == "F8_E4M3" and module + ".weight_scale_inv" in tensors:
        scales = floats(tensors[module + ".weight_scale_inv"])
        n, k = weight[1]
        return codes_e4m3(weight) * np.repeat(np.repeat(scales, 128, 0), 128, 1)[:n, :k]
    if weight[0] == "F8_E4M3":
        return codes_e4m3(weight) * floats(tensors[module + ".weight_scale"])
    return floats(weight)


@pytest.fixture(scope="session")
def golden(source_dir):
    return json.loads((source_dir / "tests" / "golden" / "quantize" / "modelopt.json").read_text())


@pytest.fixture(scope="session")
def original(source_dir, tmp_path_factory):
    """original(name): the folder of a BF16 reference checkpoint."""
    root = tmp_path_factory.mktemp("original")

    def unpack(name):
        if not (root / name).exists():
            with tarfile.open(source_dir / "tests" / "golden" / "model" / "ckpt" / f"{name}.tar.xz") as file:
                file.extractall(root)
        return root / name

    return unpack


@pytest.fixture
def quantize(espalier_bin, golden, original, tmp_path):
    """quantize(model, recipe, *options): runs the program on the golden calibration ids; returns the folder and the report."""

    def run(model, recipe, *options, eval_tokens=0):
        calibration = tmp_path / "ids.json"
        calibration.write_text(json.dumps(golden["calibration"][model]))
        out = tmp_path / f"{model}-{recipe}"
        line = [espalier_bin, "quantize", original(model), out, "--recipe", recipe, "--calib", calibration, "--json", "--eval-tokens",
                eval_tokens, *options]
        done = subprocess.run([str(part) for part in line], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""  # progress is for terminals
        return out, json.loads(done.stdout)

    return run


def is_activation_scale(name):
    return name.endswith((".input_scale", ".k_scale", ".v_scale"))


def check_like_modelopt(tensors, want):
    n_equal = 0
    for name, expected in want.items():
        assert name in tensors, name
        kind, shape, data = tensors[name]
        if is_activation_scale(name):
            assert abs(floats(tensors[name]).item() / expected - 1) < 0.03, name
        elif isinstance(expected, float):
            assert floats(tensors[name]).item() == expected, name
        else:
            assert [kind, shape, hashlib.sha256(data).hexdigest()] == expected, name
            n_equal += 1
    assert n_equal >= 13


@pytest.mark.parametrize("name, model, recipe, options", [
    ("tiny_a-nvfp4", "tiny_a", "nvfp4", []),
    ("tiny_b-nvfp4", "tiny_b", "nvfp4", ["--lm-head", "yes", "--mtp", "yes"]),
    ("tiny_b-fp8", "tiny_b", "fp8-block", ["--mtp", "yes"]),
    ("tiny_b-mixed", "tiny_b", "fp8", []),
])
def test_codes_and_scales_are_modelopts(name, model, recipe, options, golden, quantize):
    out, _ = quantize(model, recipe, *options)
    tensors = read_tensors(out)
    check_like_modelopt(tensors, golden["checkpoints"][name])
    if recipe == "fp8":
        return  # the golden file mixes formats
    extra = {tensor for tensor in tensors if "visual" not in tensor and not tensor.startswith("mtp.")} - set(golden["checkpoints"][name])
    assert not extra, extra


@pytest.mark.parametrize("model, recipe", [("tiny_a", "nvfp4"), ("tiny_b", "nvfp4-w4a16"), ("tiny_b", "fp8"), ("tiny_b", "fp8-block")])
def test_an_independent_reader_gets_the_same_values(model, recipe, quantize, original, espalier_bin, tmp_path):
    """The errors that the program reports are those that numpy finds in the files, and products agree with `eval linear`."""
    out, report = quantize(model, recipe, "--lm-head", "yes", "--mtp", "yes", "--kv", "fp8")
    before, after = read_tensors(original(model)), read_tensors(out)
    prefix = "model.language_model." if model == "tiny_a" else "model."
    assert len(report["modules"]) >= 25
    for module in report["modules"]:
        name = module["name"] if module["name"].startswith(("mtp.", "lm_head")) else prefix + module["name"]
        source = name + ".weight" if name + ".weight" in before else prefix + "embed_tokens.weight"
        old = floats(before[source]).astype(np.float64)
        new = dequantise(after, name).astype(np.float64)
        error = np.sqrt(((old - new) ** 2).sum() / (old**2).sum())
        assert abs(error / module["relative_error"] - 1) < 1e-9, name
        assert abs(module["sqnr_db"] + 20 * np.log10(error)) < 1e-6, name
        assert error < (0.04 if recipe.startswith("fp8") else 0.13), name
    for name in ("layers.0.mlp.down_proj", "lm_head"):
        full = name if name == "lm_head" else prefix + name
        x = np.random.default_rng(7).standard_normal((3, dequantise(after, full).shape[1])).astype(np.float32)
        np.save(tmp_path / "x.npy", x)
        line = [espalier_bin, "eval", "linear", out, "--module", name, "--in", tmp_path / "x.npy", "--out", tmp_path / "y.npy", "--acts", "a32"]
        done = subprocess.run([str(part) for part in line], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        want = x.astype(np.float64) @ dequantise(after, full).astype(np.float64).T
        got = np.load(tmp_path / "y.npy")
        assert np.sqrt(((got - want) ** 2).mean() / (want**2).mean()) < 1e-6, name


def test_copied_tensors_and_files_are_the_same(quantize, original):
    out, _ = quantize("tiny_a", "nvfp4")
    before, after = read_tensors(original("tiny_a")), read_tensors(out)
    assert (out / "generation_config.json").read_bytes() == (original("tiny_a") / "generation_config.json").read_bytes()
    for name, tensor in before.items():
        if name.removesuffix(".weight") + ".weight_scale" in after:
            continue
        assert after[name] == tensor, name
    assert any("visual" in name for name in after) and any(name.startswith("mtp.") for name in after)
    assert not (out / ".quantize").exists()


def test_metadata_is_in_modelopts_form(quantize, original, golden):
    out, _ = quantize("tiny_b", "nvfp4", "--lm-head", "yes", "--mtp", "yes")
    numbers = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
    section = json.loads((out / "config.json").read_text())["quantization_config"]
    ignored = sorted(["model.embed_tokens", "mtp.fc*", *(f"model.layers.{i}.linear_attn.{m}" for i in range(3) for m in ("conv1d", "in_proj_a", "in_proj_b"))])
    assert section["config_groups"] == {"group_0": {"input_activations": numbers, "weights": numbers, "targets": ["Linear"]}}
    assert section["ignore"] == ignored
    assert section["quant_algo"] == "NVFP4" and section["quant_method"] == "modelopt"
    assert section["kv_cache_scheme"] == {"dynamic": False, "num_bits": 8, "type": "float"}
    quantization = json.loads((out / "hf_quant_config.json").read_text())["quantization"]
    assert quantization == {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ignored}
    config = json.loads((original("tiny_b") / "config.json").read_text())
    written = json.loads((out / "config.json").read_text())
    del written["quantization_config"]
    assert written == config


def test_whole_model_comparison(quantize):
    """The fewer bits, the further predictions move; the report says so on text that calibration did not see."""
    kl = {}
    for recipe in ("fp8", "nvfp4-w4a16", "nvfp4"):
        _, report = quantize("tiny_b", recipe, eval_tokens=128)
        model = report["model"]
        assert model["tokens"] == 126 and model["held_out"] is True  # two sequences of 64
        assert report["calibration"] == {"sequences": 18, "tokens": 1152}
        assert 0 < model["kl_mean"] <= model["kl_max"]
        assert 0 < model["top1_agreement"] <= 1
        kl[recipe] = model["kl_mean"]
    assert 0 < kl["fp8"] < kl["nvfp4-w4a16"] < kl["nvfp4"] < 1


@pytest.mark.full
@pytest.mark.parametrize("recipe", ["nvfp4", "fp8"])
def test_modelopt_itself_agrees(recipe, source_dir, original, quantize):
    """Runs NVIDIA's ModelOpt on the weights of a reference checkpoint, in an environment of its own."""
    python = source_dir / ".venv-modelopt" / "bin" / "python"
    if not python.exists():
        pytest.skip("needs .venv-modelopt with nvidia-modelopt and torch, see tests/golden/quantize/requirements.txt")
    out, _ = quantize("tiny_b", recipe, "--lm-head", "yes", "--mtp", "yes")
    check = source_dir / "tests" / "golden" / "quantize" / "check_modelopt.py"
    done = subprocess.run([python, check, original("tiny_b"), out], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
def test_the_08b_shape_needs_less_than_3_gb(espalier_bin, tmp_path):
    """A model of real shape with random weights: peak memory, and the independent reading of some large modules."""
    source, out, ids = tmp_path / "source", tmp_path / "out", tmp_path / "ids.json"
    line = [espalier_bin, "eval", "make-model", "--shape", "0.8b", "--format", "bf16", "--out", source]
    assert subprocess.run([str(part) for part in line], check=False).returncode == 0
    ids.write_text(json.dumps(np.random.default_rng(3).integers(0, 248320, (9, 40)).tolist()))
    line = [espalier_bin, "quantize", source, out, "--recipe", "nvfp4", "--calib", ids, "--lm-head", "yes", "--mtp", "yes", "--json"]
    with (tmp_path / "report.json").open("w") as report_file:
        process = subprocess.Popen([str(part) for part in line], stdout=report_file)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert usage.ru_maxrss < 3_000_000_000 / 1024, f"{usage.ru_maxrss / 1024:.0f} MiB"  # KiB
    errors = {module["name"]: module["relative_error"] for module in json.loads((tmp_path / "report.json").read_text())["modules"]}
    before, after = read_tensors(source), read_tensors(out)
    for name in ("layers.0.linear_attn.in_proj_qkv", "layers.23.mlp.down_proj", "layers.3.self_attn.q_proj"):
        old = floats(before[f"model.{name}.weight"]).astype(np.float64)
        error = np.sqrt(((old - dequantise(after, f"model.{name}")) ** 2).sum() / (old**2).sum())
        assert abs(error / errors[name] - 1) < 1e-9, name


def test_an_interrupted_run_goes_on(espalier_bin, original, golden, tmp_path):
    calibration = tmp_path / "ids.json"
    calibration.write_text(json.dumps(golden["calibration"]["tiny_b"]))
    whole, cut = tmp_path / "whole", tmp_path / "cut"

    def line(out, *options):
        return [str(part) for part in (espalier_bin, "quantize", original("tiny_b"), out, "--recipe", "nvfp4", "--calib", calibration,
                                       "--json", *options)]

    assert subprocess.run(line(whole), capture_output=True, check=False).returncode == 0
    for seconds in (0.02, 0.05, 0.1, 0.2, None):  # wherever these fall
        if (cut / ".quantize" / "progress.json").exists():
            done = subprocess.run(line(cut), capture_output=True, text=True, check=False)
            assert done.returncode == 1 and "--resume" in done.stderr
        try:
            done = subprocess.run(line(cut, "--resume"), capture_output=True, text=True, check=False, timeout=seconds)
        except subprocess.TimeoutExpired:
            continue
        # A run that was killed when all was written, before it ended, has left nothing to do.
        assert done.returncode == 0 or "no unfinished run" in done.stderr, done.stderr
        break
    assert sorted(path.name for path in cut.iterdir()) == sorted(path.name for path in whole.iterdir())
    for path in whole.iterdir():
        assert (cut / path.name).read_bytes() == path.read_bytes(), path.name


def test_errors_are_one_line_and_say_what_to_do(espalier_bin, original, quantize, golden, tmp_path):
    ids = tmp_path / "some.json"
    ids.write_text("[[1, 2, 3], [4, 5]]")
    bad_ids = tmp_path / "bad.json"
    bad_ids.write_text("[1, 2, 999999]")
    quantised, _ = quantize("tiny_b", "fp8-block")
    tiny = original("tiny_b")
    cases = [
        ([tiny, tmp_path / "a", "--recipe", "int3", "--calib", ids], "int3"),
        ([tiny, tmp_path / "a", "--recipe", "nvfp4"], "--calib"),
        ([tiny, tmp_path / "a", "--recipe", "nvfp4", "--calib", bad_ids], "999999"),
        ([tiny, tmp_path / "a", "--recipe", "nvfp4", "--calib", tmp_path / "missing.json"], "missing.json"),
        ([tiny, tiny, "--recipe", "nvfp4", "--calib", ids], "not an empty folder"),
        ([quantised, tmp_path / "a", "--recipe", "nvfp4", "--calib", ids], "already"),
        ([tmp_path, tmp_path / "a", "--recipe", "nvfp4", "--calib", ids], "config.json"),
    ]
    for options, words in cases:
        done = subprocess.run([str(part) for part in (espalier_bin, "quantize", *options)], capture_output=True, text=True, check=False)
        assert done.returncode == 1, (options, done.stdout)
        assert done.stderr.startswith("espalier: ") and done.stderr.count("\n") == 1, done.stderr
        assert words in done.stderr, done.stderr
        assert not (tmp_path / "a" / "config.json").exists()
