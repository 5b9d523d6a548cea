"""check_modelopt.py ORIGINAL QUANTISED: ModelOpt's quantisers on the original's weights against the codes and scales in the files.

ORIGINAL is a BF16 folder with one safetensors file, QUANTISED what `espalier quantize --recipe nvfp4` (or fp8) made of it.
"""
import sys
from pathlib import Path

import torch
from modelopt.torch.quantization.qtensor import NVFP4QTensor
from safetensors import safe_open

FUSED = ({"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj"}, {"in_proj_qkv", "in_proj_z"})


def read(folder):
    (path,) = Path(folder).glob("*.safetensors")
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def fused_with(module, modules):
    parent, leaf = module.rsplit(".", 1) if "." in module else ("", module)
    group = next((group for group in FUSED if leaf in group), {leaf})
    return [other for other in modules if other == module or (other.rsplit(".", 1)[0] == parent and other.rsplit(".", 1)[-1] in group)]


def same(a, b):
    return a.shape == b.shape and torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def main(original, quantised):
    before, after = read(original), read(quantised)
    modules = [name.removesuffix(".weight_scale_2") for name in after if name.endswith(".weight_scale_2")]
    assert len(modules) >= 20, modules
    for module in modules:
        amax = max(before[other + ".weight"].float().abs().max() for other in fused_with(module, modules))
        second = amax / (6.0 * 448.0)
        codes, scales, _ = NVFP4QTensor.quantize(before[module + ".weight"].clone(), 16, weights_scaling_factor_2=second)
        assert same(after[module + ".weight_scale_2"].reshape(1), second.float().reshape(1)), f"{module}: weight_scale_2"
        assert same(after[module + ".weight_scale"], scales), f"{module}: weight_scale"
        assert same(after[module + ".weight"], codes._quantized_data), f"{module}: codes"
    print(f"{len(modules)} modules agree")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
