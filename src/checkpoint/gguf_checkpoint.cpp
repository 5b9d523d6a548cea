#include "checkpoint/gguf_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "base/check.h"
#include "checkpoint/gguf_blocks.h"
#include "checkpoint/gguf_config.h"
#include "checkpoint/gguf_files.h"
#include "checkpoint/gguf_names.h"
#include "checkpoint/names.h"
#include "checkpoint/values.h"
#include "tensor/buffer.h"

namespace espalier::checkpoint {
namespace {

// A tensor under our name.
struct Entry {
    const GgufTensor* tensor = nullptr;
    GgufTransform transform = GgufTransform::none;
    bool is_known = true;  // false: the architecture has no such tensor
};

// The type of the values as they are handed out; empty for types that are refused.
std::optional<WeightLayout> layout_of(const GgufTensorType& type) {
    if (type.name == "F32") return WeightLayout::f32;
    if (type.name == "F16") return WeightLayout::f16;
    if (type.name == "BF16" || can_expand(type)) return WeightLayout::bf16;
    if (type.name == "NVFP4") return WeightLayout::nvfp4;
    return std::nullopt;
}

// Of a type of plain values.
int64_t value_bytes(WeightLayout layout) {
    return layout == WeightLayout::f32 ? 4 : 2;
}

// Bytes of a tensor as it is handed out. NVFP4 is only reordered.
int64_t loaded_bytes(const GgufTensor& tensor) {
    if (!can_expand(*tensor.type)) return static_cast<int64_t>(tensor.data.size());
    return static_cast<int64_t>(tensor.data.size()) / tensor.type->block_bytes * tensor.type->block_values *
           value_bytes(WeightLayout::bf16);
}

// Where value heads lie: [0, begin) stays, then groups of `width` rows or columns, one per head.
class HeadOrder {
public:
    HeadOrder(int64_t n_key_heads, int64_t n_value_heads, int64_t begin, int64_t width)
        : n_key_heads_(n_key_heads), n_value_heads_(n_value_heads), begin_(begin), width_(width) {}

    int64_t size() const { return begin_ + n_value_heads_ * width_; }
    // The row (or column) of the file for one of Hugging Face's order.
    int64_t in_file(int64_t row) const {
        if (row < begin_) return row;
        const int64_t head = (row - begin_) / width_;
        return begin_ + gguf_value_head(head, n_key_heads_, n_value_heads_) * width_ + (row - begin_) % width_;
    }

private:
    int64_t n_key_heads_;
    int64_t n_value_heads_;
    int64_t begin_;
    int64_t width_;
};

// The float whose exponential is `target`, as near as there is one: exp and log round, so log alone may miss by a step, and the
// model uses the exponential.
float log_that_gives(float target) {
    constexpr int kSteps = 4;
    const auto nearest = static_cast<float>(std::log(static_cast<double>(target)));
    float candidate = nearest;
    for (int i = 0; i < kSteps; ++i) candidate = std::nextafter(candidate, -INFINITY);
    for (int i = 0; i <= 2 * kSteps; ++i, candidate = std::nextafter(candidate, INFINITY)) {
        if (std::exp(candidate) == target) return candidate;
    }
    return nearest;
}

class GgufCheckpoint final : public Checkpoint {
public:
    GgufCheckpoint(std::string path, HfConfig config, GgufFiles files)
        : path_(std::move(path)), config_(std::move(config)), files_(std::move(files)) {}

    Status bind();

    const Json& text_config() const override { return config_.text; }
    const Json& raw_config() const override { return config_.raw; }
    const GenerationDefaults& generation_defaults() const override { return config_.generation; }
    const std::string& path() const override { return path_; }

    Result<WeightView> linear(std::string_view module, int64_t n, int64_t k) override;
    bool has_linear(std::string_view module) const override { return find_linear(module) != nullptr; }
    Result<std::vector<float>> floats(std::string_view name, std::span<const int64_t> shape) override;
    bool has_tensor(std::string_view name) const override { return entries_.find(name) != entries_.end(); }
    // No GGUF file of this architecture has scales for keys and values.
    Result<KvScales> kv_scales(std::string_view) override { return KvScales{}; }
    bool declares_fp8_kv() const override { return false; }
    Status check_all_used() const override;
    std::vector<TensorInfo> tensors() const override;
    std::vector<ModuleInfo> modules() const override;
    std::vector<std::string> notes() const override;
    void release(const WeightView& weight) const override;

private:
    const Entry* find_linear(std::string_view module) const;
    int64_t size_of(const char* key) const { return config_.text[key].get<int64_t>(); }
    std::optional<HeadOrder> head_order(GgufTransform transform) const;
    bool is_copied(const Entry& entry) const;
    Status check_order(const Entry& entry, int64_t n, int64_t k) const;
    Result<std::span<const std::byte>> make_copy(const Entry& entry, int64_t n, int64_t k);
    Result<float> second_scale(std::string_view name, float otherwise);
    Status view_nvfp4(const Entry& entry, std::string_view module, WeightView& view);

    std::string path_;
    HfConfig config_;
    GgufFiles files_;
    std::map<std::string, Entry, std::less<>> entries_;  // by normalised name
    std::set<const GgufTensor*> used_;
    mutable std::map<const std::byte*, Buffer> copies_;  // expanded or reordered weights, until they are released
};

bool is_linear_name(std::string_view name) {
    return name.ends_with(".weight") && !name.ends_with(".conv1d.weight");
}

Status GgufCheckpoint::bind() {
    const int64_t n_layers = size_of("num_hidden_layers");
    for (const auto& tensor : files_.tensors) {
        if (!layout_of(*tensor.type)) {
            return unsupported(
                fmt::format("{}: tensor '{}' is stored as {}, which this program cannot read; supported are F32, F16, "
                            "BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS, MXFP4 and NVFP4",
                            path_, printable(tensor.name), tensor.type->name));
        }
        auto name = normalise_gguf_name(tensor.name, n_layers);
        const Entry entry{&tensor, name ? name->transform : GgufTransform::none, name.has_value()};
        // Unknown tensors keep their name, which none of ours can be.
        entries_.emplace(name ? std::move(name->name) : "gguf:" + tensor.name, entry);
    }
    return {};
}

const Entry* GgufCheckpoint::find_linear(std::string_view module) const {
    const auto found = entries_.find(fmt::format("{}.weight", module));
    if (found == entries_.end() || !is_linear_name(found->first)) return nullptr;
    return found->second.tensor->shape.size() == 2 ? &found->second : nullptr;
}

// Empty when the tensor's order is ours already.
std::optional<HeadOrder> GgufCheckpoint::head_order(GgufTransform transform) const {
    const int64_t n_key = size_of("linear_num_key_heads");
    const int64_t n_value = size_of("linear_num_value_heads");
    const int64_t width = size_of("linear_value_head_dim");
    if (n_key == n_value) return std::nullopt;
    switch (transform) {
        case GgufTransform::value_heads:
        case GgufTransform::log_of_negative: return HeadOrder(n_key, n_value, 0, 1);
        case GgufTransform::value_rows:
        case GgufTransform::value_columns: return HeadOrder(n_key, n_value, 0, width);
        case GgufTransform::qkv_rows: return HeadOrder(n_key, n_value, 2 * n_key * size_of("linear_key_head_dim"), width);
        case GgufTransform::none:
        case GgufTransform::minus_one: return std::nullopt;
    }
    return std::nullopt;
}

bool GgufCheckpoint::is_copied(const Entry& entry) const {
    const auto layout = *layout_of(*entry.tensor->type);
    const auto address = reinterpret_cast<uintptr_t>(entry.tensor->data.data());
    return layout == WeightLayout::nvfp4 || can_expand(*entry.tensor->type) || head_order(entry.transform) ||
           address % static_cast<uintptr_t>(value_bytes(layout)) != 0;
}

// One row of a tensor in the type that it is handed out in.
void copy_row(const GgufTensor& tensor, int64_t row, std::span<float> scratch, std::span<std::byte> out) {
    const size_t bytes = tensor.data.size() / static_cast<size_t>(tensor.shape[0]);
    const auto stored = tensor.data.subspan(static_cast<size_t>(row) * bytes, bytes);
    if (!can_expand(*tensor.type)) {
        std::memcpy(out.data(), stored.data(), bytes);
        return;
    }
    expand_gguf_blocks(*tensor.type, stored, scratch);
    for (size_t i = 0; i < scratch.size(); ++i) {
        const uint16_t bits = bf16_from_float(scratch[i]);
        std::memcpy(out.data() + 2 * i, &bits, 2);
    }
}

// Whether the value heads of the metadata fill the rows (or columns).
Status GgufCheckpoint::check_order(const Entry& entry, int64_t n, int64_t k) const {
    const auto order = head_order(entry.transform);
    const bool has_columns = entry.transform == GgufTransform::value_columns;
    if (!order || order->size() == (has_columns ? k : n)) return {};
    return invalid_input(fmt::format("{}: '{}' has shape {}, the metadata asks for {} {}", path_, printable(entry.tensor->name),
                                     shape_text(entry.tensor->shape), order->size(), has_columns ? "columns" : "rows"));
}

// The weight in its own memory: expanded, in Hugging Face's order of value heads.
Result<std::span<const std::byte>> GgufCheckpoint::make_copy(const Entry& entry, int64_t n, int64_t k) {
    const auto value = static_cast<size_t>(value_bytes(*layout_of(*entry.tensor->type)));
    const auto row_bytes = static_cast<size_t>(k) * value;
    const auto order = head_order(entry.transform);
    const bool has_columns = entry.transform == GgufTransform::value_columns;
    auto buffer = Buffer::allocate(static_cast<size_t>(n) * row_bytes);
    if (!buffer) return buffer.error();
    std::vector<float> values(static_cast<size_t>(k));
    std::vector<std::byte> row(row_bytes);
    std::vector<size_t> columns;  // where each column begins in the file's row
    for (int64_t column = 0; order && has_columns && column < k; ++column)
        columns.push_back(static_cast<size_t>(order->in_file(column)) * value);
    for (int64_t i = 0; i < n; ++i) {
        const std::span<std::byte> out(buffer->data() + static_cast<size_t>(i) * row_bytes, row_bytes);
        if (columns.empty()) {
            copy_row(*entry.tensor, order ? order->in_file(i) : i, values, out);
            continue;
        }
        copy_row(*entry.tensor, i, values, row);
        for (size_t column = 0; column < columns.size(); ++column)
            std::memcpy(out.data() + column * value, row.data() + columns[column], value);
    }
    const std::span<const std::byte> bytes(buffer->data(), buffer->bytes());
    copies_.emplace(bytes.data(), *std::move(buffer));
    return bytes;
}

// A second-level scale: one float above 0 beside its matrix, or `otherwise`.
Result<float> GgufCheckpoint::second_scale(std::string_view name, float otherwise) {
    const auto found = entries_.find(name);
    if (found == entries_.end()) return otherwise;
    const GgufTensor& tensor = *found->second.tensor;
    const bool is_float = tensor.type->name == "F32" && tensor.data.size() == sizeof(float);
    const float value = is_float ? read_floats(Dtype::f32, tensor.data)[0] : 0.0f;
    if (!std::isfinite(value) || !(value > 0)) {
        return corrupt_data(fmt::format("{}: '{}' is {} {} ({}), expected one F32 above 0; the file is damaged, fetch it again",
                                        path_, printable(tensor.name), tensor.type->name, shape_text(tensor.shape), value));
    }
    used_.insert(&tensor);
    return value;
}

Status GgufCheckpoint::view_nvfp4(const Entry& entry, std::string_view module, WeightView& view) {
    constexpr size_t kGroup = 16;
    const auto n = static_cast<size_t>(view.n);
    const size_t code_bytes = static_cast<size_t>(view.k) / 2;
    const size_t scale_bytes = static_cast<size_t>(view.k) / kGroup;
    const auto order = head_order(entry.transform);
    const bool has_columns = entry.transform == GgufTransform::value_columns;
    if (order && has_columns && size_of("linear_value_head_dim") % static_cast<int64_t>(kGroup) != 0) {
        return unsupported(fmt::format("{}: '{}' is NVFP4 with value heads of {} columns, expected a multiple of {}", path_,
                                       printable(entry.tensor->name), size_of("linear_value_head_dim"), kGroup));
    }
    TRY_ASSIGN(auto buffer, Buffer::allocate(n * (code_bytes + scale_bytes)));
    const std::span<std::byte> codes(buffer.data(), n * code_bytes);
    const std::span<std::byte> scales(buffer.data() + codes.size(), n * scale_bytes);
    std::vector<std::byte> row_codes(code_bytes);
    std::vector<std::byte> row_scales(scale_bytes);
    const size_t row_bytes = entry.tensor->data.size() / n;
    for (size_t i = 0; i < n; ++i) {
        const auto row =
            static_cast<size_t>(order && !has_columns ? order->in_file(static_cast<int64_t>(i)) : static_cast<int64_t>(i));
        split_nvfp4_row(entry.tensor->data.subspan(row * row_bytes, row_bytes), row_codes, row_scales);
        for (size_t group = 0; group < scale_bytes; ++group) {
            const auto column = static_cast<int64_t>(group * kGroup);
            const auto from = order && has_columns ? static_cast<size_t>(order->in_file(column)) / kGroup : group;
            scales[i * scale_bytes + group] = row_scales[from];
            std::copy_n(row_codes.begin() + static_cast<std::ptrdiff_t>(from * kGroup / 2), kGroup / 2,
                        codes.begin() + static_cast<std::ptrdiff_t>(i * code_bytes + group * kGroup / 2));
        }
    }
    const auto bad = std::find_if(scales.begin(), scales.end(), [](std::byte scale) { return scale >= std::byte{0x7f}; });
    if (bad != scales.end()) {
        return corrupt_data(
            fmt::format("{}: '{}' has the block scale 0x{:02x}, expected 0x00 to 0x7e; the file is damaged, fetch it again",
                        path_, printable(entry.tensor->name), std::to_integer<int>(*bad)));
    }
    RowScale row{0, view.n, 1.0f, 0.0f};
    TRY_ASSIGN(row.weight_scale, second_scale(fmt::format("{}.weight_scale_2", module), 1.0f));
    TRY_ASSIGN(row.input_scale, second_scale(fmt::format("{}.input_scale", module), 0.0f));
    view.activations = row.input_scale > 0 ? ActivationScheme::nvfp4_static : ActivationScheme::none;
    view.row_scales.push_back(row);
    view.data = codes;
    view.block_scales_e4m3 = {reinterpret_cast<const uint8_t*>(scales.data()), scales.size()};
    copies_.emplace(codes.data(), std::move(buffer));
    return {};
}

Result<WeightView> GgufCheckpoint::linear(std::string_view module, int64_t n, int64_t k) {
    const Entry* entry = find_linear(module);
    if (entry == nullptr) {
        return invalid_input(
            fmt::format("{} ({} tensors): '{}.weight' is missing, expected a matrix of {} x {}; the file does not hold "
                        "the whole model, or its metadata belongs to another",
                        path_, files_.tensors.size(), printable(module), n, k));
    }
    const GgufTensor& tensor = *entry->tensor;
    if (tensor.shape[0] != n || tensor.shape[1] != k) {
        return invalid_input(fmt::format("{}: '{}' has shape {}, the metadata asks for {} x {}", path_, printable(tensor.name),
                                         shape_text(tensor.shape), n, k));
    }
    used_.insert(&tensor);
    WeightView view;
    view.layout = *layout_of(*tensor.type);
    view.n = n;
    view.k = k;
    view.data = tensor.data;
    TRY(check_order(*entry, n, k));
    if (view.layout == WeightLayout::nvfp4) {
        TRY(view_nvfp4(*entry, module, view));
    } else if (is_copied(*entry)) {
        TRY_ASSIGN(view.data, make_copy(*entry, n, k));
    }
    return view;
}

Result<std::vector<float>> GgufCheckpoint::floats(std::string_view name, std::span<const int64_t> shape) {
    const auto found = entries_.find(name);
    if (found == entries_.end()) {
        return invalid_input(
            fmt::format("{} ({} tensors): '{}' is missing, expected shape {}; the file does not hold the whole model, "
                        "or its metadata belongs to another",
                        path_, files_.tensors.size(), printable(name), shape_text(shape)));
    }
    const Entry& entry = found->second;
    const GgufTensor& tensor = *entry.tensor;
    if (!std::equal(tensor.shape.begin(), tensor.shape.end(), shape.begin(), shape.end())) {
        return invalid_input(fmt::format("{}: '{}' has shape {}, the metadata asks for {}", path_, printable(tensor.name),
                                         shape_text(tensor.shape), shape_text(shape)));
    }
    if (can_expand(*tensor.type) || tensor.type->name == "NVFP4") {
        return invalid_input(
            fmt::format("{}: '{}' has type {}, expected F32, BF16 or F16", path_, printable(tensor.name), tensor.type->name));
    }
    used_.insert(&tensor);
    const auto layout = *layout_of(*tensor.type);
    const Dtype dtype = layout == WeightLayout::f32 ? Dtype::f32 : layout == WeightLayout::f16 ? Dtype::f16 : Dtype::bf16;
    std::vector<float> values = read_floats(dtype, tensor.data);
    if (entry.transform == GgufTransform::minus_one) {
        for (float& value : values) value -= 1.0f;
    }
    if (entry.transform == GgufTransform::log_of_negative) {
        for (float& value : values) {
            if (!(value < 0) || !std::isfinite(value)) {
                return corrupt_data(
                    fmt::format("{}: '{}' holds {}, expected numbers below 0; the file is damaged, fetch it again", path_,
                                printable(tensor.name), value));
            }
            value = log_that_gives(-value);
        }
    }
    const auto order = head_order(entry.transform);
    if (!order) return values;
    const int64_t n_rows = shape[0];
    const size_t width = values.size() / static_cast<size_t>(n_rows);
    TRY(check_order(entry, n_rows, static_cast<int64_t>(width)));
    std::vector<float> ordered(values.size());
    for (int64_t row = 0; row < n_rows; ++row) {
        const auto from = values.begin() + order->in_file(row) * static_cast<int64_t>(width);
        std::copy_n(from, width, ordered.begin() + row * static_cast<int64_t>(width));
    }
    return ordered;
}

Status GgufCheckpoint::check_all_used() const {
    std::vector<std::string> extra;
    for (const auto& [name, entry] : entries_) {
        if (used_.contains(entry.tensor) || is_spare_mtp(name)) continue;
        extra.push_back(
            fmt::format("'{}' {} {}", printable(entry.tensor->name), entry.tensor->type->name, shape_text(entry.tensor->shape)));
    }
    if (extra.empty()) return {};
    return invalid_input(
        fmt::format("{}: {} tensors that the architecture qwen35 has no place for: {}; the model is of a kind that "
                    "this program does not know",
                    path_, extra.size(), first_few(extra)));
}

std::vector<TensorInfo> GgufCheckpoint::tensors() const {
    std::vector<TensorInfo> infos;
    for (const auto& [name, entry] : entries_) {
        const GgufTensor& tensor = *entry.tensor;
        infos.push_back({name, tensor.name, std::string(tensor.type->name), tensor.shape, loaded_bytes(tensor)});
        // Hugging Face's shape: a convolution of one input channel each, no matrix.
        if (tensor.shape.size() == 2 && name.ends_with(".conv1d.weight"))
            infos.back().shape.insert(infos.back().shape.begin() + 1, 1);
    }
    return infos;
}

std::vector<ModuleInfo> GgufCheckpoint::modules() const {
    std::vector<ModuleInfo> infos;
    for (const auto& [name, entry] : entries_) {
        if (!entry.is_known || is_spare_mtp(name) || !name.ends_with(".weight")) continue;
        const std::string module = name.substr(0, name.size() - std::string_view(".weight").size());
        if (find_linear(module) == nullptr) continue;
        const auto layout = *layout_of(*entry.tensor->type);
        const auto& shape = entry.tensor->shape;
        const bool is_static = layout == WeightLayout::nvfp4 && has_tensor(module + ".input_scale");
        infos.push_back({module, layout, is_static ? ActivationScheme::nvfp4_static : ActivationScheme::none, shape[0], shape[1],
                         loaded_bytes(*entry.tensor), is_copied(entry)});
    }
    return infos;
}

std::vector<std::string> GgufCheckpoint::notes() const {
    struct Sum {
        size_t n_tensors = 0;
        int64_t stored = 0;
        int64_t expanded = 0;
    };
    std::map<std::string_view, Sum> sums;
    size_t n_spare = 0;
    for (const auto& [name, entry] : entries_) {
        if (is_spare_mtp(name)) {
            ++n_spare;
        } else if (can_expand(*entry.tensor->type)) {
            Sum& sum = sums[entry.tensor->type->name];
            ++sum.n_tensors;
            sum.stored += static_cast<int64_t>(entry.tensor->data.size());
            sum.expanded += loaded_bytes(*entry.tensor);
        }
    }
    std::vector<std::string> lines;
    for (const auto& [type, sum] : sums) {
        lines.push_back(
            fmt::format("{} tensors of {} are expanded to BF16 when loaded: {:.1f} MB in the file, {:.1f} MB in memory",
                        sum.n_tensors, type, static_cast<double>(sum.stored) / 1e6, static_cast<double>(sum.expanded) / 1e6));
    }
    if (n_spare > 0)
        lines.push_back(fmt::format("{} tensors of an MTP-only head or embedding skipped (the trunk's are used)", n_spare));
    return lines;
}

void GgufCheckpoint::release(const WeightView& weight) const {
    if (copies_.erase(weight.data.data()) == 0) release_within(files_.shards, weight.data);
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> open_gguf_checkpoint(const std::string& path) {
    TRY_ASSIGN(auto files, open_gguf_files(path));
    const auto embedding = std::find_if(files.tensors.begin(), files.tensors.end(),
                                        [](const GgufTensor& tensor) { return tensor.name == "token_embd.weight"; });
    if (embedding == files.tensors.end() || embedding->shape.size() != 2) {
        return invalid_input(
            fmt::format("{}: 'token_embd.weight' is missing or no matrix; the file does not hold a whole model", path));
    }
    TRY_ASSIGN(auto config, config_of_gguf(files.metadata, embedding->shape[0], path));
    auto checkpoint = std::make_unique<GgufCheckpoint>(path, std::move(config), std::move(files));
    TRY(checkpoint->bind());
    return std::unique_ptr<Checkpoint>(std::move(checkpoint));
}

}  // namespace espalier::checkpoint
