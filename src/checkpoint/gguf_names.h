// The tensors of a GGUF file with architecture "qwen35" under this program's names, and how their values differ from the Hugging
// Face checkpoint they were made from (the convention of llama.cpp's converter).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace espalier::checkpoint {

// What turns the file's values into those of the Hugging Face tensor.
enum class GgufTransform : uint8_t {
    none,
    minus_one,        // norms are stored as 1 + w
    log_of_negative,  // stored as -exp(A_log), one per value head
    value_heads,      // one row per value head
    value_rows,       // value_dim rows per value head
    qkv_rows,         // the same after the rows of queries and keys
    value_columns,    // value_dim columns per value head
};

struct GgufName {
    std::string name;  // normalised
    GgufTransform transform = GgufTransform::none;
};

// n_layers: blocks of the trunk; the block after them is the MTP layer. Empty for a tensor that this architecture does not have.
std::optional<GgufName> normalise_gguf_name(std::string_view name, int64_t n_layers);

// The file orders value heads so that head s belongs to key head s % n_key_heads, Hugging Face so that the value heads of a key
// head are neighbours. Where value head `head` of Hugging Face's order lies in the file.
constexpr int64_t gguf_value_head(int64_t head, int64_t n_key_heads, int64_t n_value_heads) {
    const int64_t per_key = n_value_heads / n_key_heads;
    return head % per_key * n_key_heads + head / per_key;
}

}  // namespace espalier::checkpoint
