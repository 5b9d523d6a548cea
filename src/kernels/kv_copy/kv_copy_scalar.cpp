#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/kv_copy/kv_copy.h"

namespace espalier::kernels::scalar {

// Each file builds on those before it.
// clang-format off
#include "kernels/vec/vec_scalar.inc"
#include "kernels/vec/math_body.inc"
#include "kernels/kv_copy/kv_copy_body.inc"
// clang-format on

template <class T>
static void place(const KPlaceArgs& args) {
    const T* row = static_cast<const T*>(args.row);
    T* block = static_cast<T*>(args.block);
    for (int64_t d = 0; d < args.head_dim; ++d) block[d * kKeyBlock + args.lane] = row[d];
}

// A strided store per element in any tier, so the plain loop is the only variant.
void k_place(const KPlaceArgs& args) noexcept {
    switch (args.kv) {
        case KvType::f32: return place<uint32_t>(args);
        case KvType::bf16: return place<uint16_t>(args);
        case KvType::fp8: return place<uint8_t>(args);
    }
}

}  // namespace espalier::kernels::scalar
