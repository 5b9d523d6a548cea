#include "checkpoint/gguf_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

namespace espalier::checkpoint {
namespace {

struct Row {
    std::string_view gguf;
    std::string_view ours;
    GgufTransform transform = GgufTransform::none;
};

constexpr Row kTop[] = {
    {"token_embd.weight", "embed_tokens.weight"},
    {"output_norm.weight", "norm.weight", GgufTransform::minus_one},
    {"output.weight", "lm_head.weight"},
};

// After "blk.N.".
constexpr Row kBlock[] = {
    {"attn_norm.weight", "input_layernorm.weight", GgufTransform::minus_one},
    {"post_attention_norm.weight", "post_attention_layernorm.weight", GgufTransform::minus_one},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", GgufTransform::minus_one},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", GgufTransform::minus_one},
    {"attn_qkv.weight", "linear_attn.in_proj_qkv.weight", GgufTransform::qkv_rows},
    {"attn_gate.weight", "linear_attn.in_proj_z.weight", GgufTransform::value_rows},
    {"ssm_beta.weight", "linear_attn.in_proj_b.weight", GgufTransform::value_heads},
    {"ssm_alpha.weight", "linear_attn.in_proj_a.weight", GgufTransform::value_heads},
    {"ssm_conv1d.weight", "linear_attn.conv1d.weight", GgufTransform::qkv_rows},
    {"ssm_dt.bias", "linear_attn.dt_bias", GgufTransform::value_heads},
    {"ssm_a", "linear_attn.A_log", GgufTransform::log_of_negative},
    {"ssm_norm.weight", "linear_attn.norm.weight"},
    {"ssm_out.weight", "linear_attn.out_proj.weight", GgufTransform::value_columns},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
};

// After "blk.N." of the MTP layer.
constexpr Row kNextn[] = {
    {"nextn.eh_proj.weight", "mtp.fc.weight"},
    {"nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight", GgufTransform::minus_one},
    {"nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight", GgufTransform::minus_one},
    {"nextn.shared_head_norm.weight", "mtp.norm.weight", GgufTransform::minus_one},
    {"nextn.embed_tokens.weight", "mtp.embed_tokens.weight"},
    {"nextn.shared_head_head.weight", "mtp.lm_head.weight"},
};

const Row* find_row(std::span<const Row> rows, std::string_view gguf) {
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.gguf == gguf; });
    return found == rows.end() ? nullptr : &*found;
}

// "17" without sign or leading zeros, so that two spellings never name one layer.
std::optional<int64_t> layer_number(std::string_view text) {
    constexpr size_t kDigitsMax = 6;
    if (text.empty() || text.size() > kDigitsMax || (text[0] == '0' && text.size() > 1)) return std::nullopt;
    int64_t value = 0;
    for (const char c : text) {
        if (c < '0' || c > '9') return std::nullopt;
        value = 10 * value + (c - '0');
    }
    return value;
}

std::optional<GgufName> normalise_plain(std::string_view name, int64_t n_layers) {
    if (const Row* row = find_row(kTop, name)) return GgufName{std::string(row->ours), row->transform};
    constexpr std::string_view kPrefix = "blk.";
    const size_t dot = name.find('.', kPrefix.size());
    if (!name.starts_with(kPrefix) || dot == std::string_view::npos) return std::nullopt;
    const auto layer = layer_number(name.substr(kPrefix.size(), dot - kPrefix.size()));
    const auto rest = name.substr(dot + 1);
    if (!layer || *layer > n_layers) return std::nullopt;
    const bool is_mtp = *layer == n_layers;
    if (const Row* row = find_row(kBlock, rest)) {
        const std::string prefix = is_mtp ? "mtp.layers.0" : fmt::format("layers.{}", *layer);
        return GgufName{fmt::format("{}.{}", prefix, row->ours), row->transform};
    }
    const Row* row = is_mtp ? find_row(kNextn, rest) : nullptr;
    if (row == nullptr) return std::nullopt;
    return GgufName{std::string(row->ours), row->transform};
}

}  // namespace

std::optional<GgufName> normalise_gguf_name(std::string_view name, int64_t n_layers) {
    if (auto plain = normalise_plain(name, n_layers)) return plain;
    // Second-level scales lie beside the matrix that they belong to.
    constexpr std::string_view kWeight = ".weight";
    for (const auto& [gguf, ours] : {std::pair<std::string_view, std::string_view>{".input_scale", ".input_scale"},
                                     std::pair<std::string_view, std::string_view>{".scale", ".weight_scale_2"}}) {
        if (!name.ends_with(gguf)) continue;
        auto matrix = normalise_plain(fmt::format("{}{}", name.substr(0, name.size() - gguf.size()), kWeight), n_layers);
        if (!matrix || !matrix->name.ends_with(kWeight)) return std::nullopt;
        return GgufName{fmt::format("{}{}", matrix->name.substr(0, matrix->name.size() - kWeight.size()), ours)};
    }
    return std::nullopt;
}

}  // namespace espalier::checkpoint
