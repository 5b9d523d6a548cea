"""check_modelopt.py ORIGINAL QUANTISED: ModelOpt's quantisers on the original's weights against the codes and scales in the files.

ORIGINAL is a BF16 folder with one safetensors file, QUANTISED what `espalier quantize --recipe nvfp4` (or fp8) made of it.
"""
import sys
from pathlib import Path

import torch
from modelopt.torch.export.quant_utils import QUANTIZATION_FP8, to_quantized_weight
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


def check_nvfp4(before, after, module, modules):
    amax = max(before[other + ".weight"].float().abs().max() for other in fused_with(module, modules))
    second = amax / (6.0 * 448.0)
    codes, scales, _ = NVFP4QTensor.quantize(before[module + ".weight"].clone(), 16, weights_scaling_factor_2=second)
    assert same(after[module + ".weight_scale_2"].reshape(1), second.float().reshape(1)), f"{module}: weight_scale_2"
    assert same(after[module + ".weight_scale"], scales), f"{module}: weight_scale"
    assert same(after[module + ".weight"], codes._quantized_data), f"{module}: codes"


def check_fp8(before, after, module):
    weight = before[module + ".weight"]
    scale = weight.float().abs().max() / 448.0
    assert same(after[module + ".weight_scale"].reshape(1), scale.reshape(1)), f"{module}: weight_scale"
    assert same(after[module + ".weight"], to_quantized_weight(weight, scale, QUANTIZATION_FP8)), f"{module}: codes"


def main(original, quantised):
    before, after = read(original), read(quantised)
    nvfp4 = [name.removesuffix(".weight_scale_2") for name in after if name.endswith(".weight_scale_2")]
    fp8 = [name.removesuffix(".weight_scale") for name, scale in after.items() if name.endswith(".weight_scale") and scale.dim() == 0]
    assert len(nvfp4) + len(fp8) >= 20, (nvfp4, fp8)
    for module in nvfp4:
        check_nvfp4(before, after, module, nvfp4)
    for module in fp8:
        check_fp8(before, after, module)
    print(f"{len(nvfp4)} NVFP4 and {len(fp8)} FP8 modules agree")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
