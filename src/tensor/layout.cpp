#include "tensor/layout.h"

namespace espalier {

size_t dtype_bytes(Dtype dtype) {
    switch (dtype) {
        case Dtype::f32:
        case Dtype::i32: return 4;
        case Dtype::bf16:
        case Dtype::f16: return 2;
        case Dtype::i64: return 8;
        case Dtype::f8_e4m3:
        case Dtype::u8:
        case Dtype::i8: return 1;
    }
    return 0;
}

std::string_view to_string(Dtype dtype) {
    switch (dtype) {
        case Dtype::f32: return "F32";
        case Dtype::bf16: return "BF16";
        case Dtype::f16: return "F16";
        case Dtype::f8_e4m3: return "F8_E4M3";
        case Dtype::u8: return "U8";
        case Dtype::i8: return "I8";
        case Dtype::i32: return "I32";
        case Dtype::i64: return "I64";
    }
    return "?";
}

std::string_view to_string(WeightLayout layout) {
    switch (layout) {
        case WeightLayout::f32: return "f32";
        case WeightLayout::bf16: return "bf16";
        case WeightLayout::f16: return "f16";
        case WeightLayout::nvfp4: return "nvfp4";
        case WeightLayout::fp8_tensor: return "fp8_tensor";
        case WeightLayout::fp8_channel: return "fp8_channel";
        case WeightLayout::fp8_block: return "fp8_block";
    }
    return "?";
}

std::string_view to_string(ActivationScheme scheme) {
    switch (scheme) {
        case ActivationScheme::none: return "none";
        case ActivationScheme::nvfp4_static: return "nvfp4_static";
        case ActivationScheme::fp8_static: return "fp8_static";
        case ActivationScheme::fp8_dynamic_token: return "fp8_dynamic_token";
        case ActivationScheme::fp8_dynamic_block: return "fp8_dynamic_block";
    }
    return "?";
}

}  // namespace espalier
