#include "quant/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "checkpoint/names.h"
#include "kernels/gather/gather.h"
#include "quant/weight_rules.h"

namespace espalier::quant {
namespace {

using checkpoint::ByteSink;
using checkpoint::TensorToWrite;

constexpr int64_t kBatchFloats = 1 << 21;  // of a weight in work at a time
constexpr int64_t kTaskRows = 8;
constexpr size_t kCopyBytes = 16 << 20;
constexpr int64_t kFp8Block = 128;

// The view of rows [begin, begin + n), for telling the system that they are done with.
WeightView rows_of(const WeightView& view, int64_t begin, int64_t n) {
    WeightView part;
    const auto row_bytes = static_cast<int64_t>(view.data.size()) / view.n;
    part.data = view.data.subspan(static_cast<size_t>(begin * row_bytes), static_cast<size_t>(n * row_bytes));
    return part;
}

// body(row, floats) for every row of a weight, in parallel; after(begin, n) when a batch of rows is done, in order.
template <class Body, class After>
Status for_rows(const OutputSource& source, const WeightView& view, const Body& body, const After& after) {
    const int64_t batch = std::max(kTaskRows, kBatchFloats / view.k / kTaskRows * kTaskRows);
    std::vector<std::vector<float>> scratch(static_cast<size_t>(source.pool.n_threads()));
    for (auto& row : scratch) row.resize(static_cast<size_t>(view.k));
    for (int64_t begin = 0; begin < view.n; begin += batch) {
        const int64_t n = std::min(batch, view.n - begin);
        source.pool.run((n + kTaskRows - 1) / kTaskRows, [&](int64_t task, int worker) {
            float* row = scratch[static_cast<size_t>(worker)].data();
            for (int64_t i = task * kTaskRows; i < std::min(n, (task + 1) * kTaskRows); ++i) {
                kernels::gather_row(view, begin + i, row);
                body(begin + i, row);
            }
        });
        TRY(after(begin, n));
        source.checkpoint.release(rows_of(view, begin, n));
    }
    return {};
}

// Makes rows of `row_bytes` bytes of a weight and hands them on in order. convert(row, floats, out).
template <class Convert>
Status stream_rows(const OutputSource& source, const WeightView& view, int64_t row_bytes, const ByteSink& sink,
                   const Convert& convert) {
    std::vector<std::byte> bytes;
    const int64_t batch = std::max(kTaskRows, kBatchFloats / view.k / kTaskRows * kTaskRows);
    bytes.resize(static_cast<size_t>(std::min(batch, view.n) * row_bytes));
    return for_rows(
        source, view,
        [&](int64_t row, const float* x) { convert(row, x, reinterpret_cast<uint8_t*>(bytes.data()) + row % batch * row_bytes); },
        [&](int64_t, int64_t n) { return sink(std::span(bytes).first(static_cast<size_t>(n * row_bytes))); });
}

// A module with what its scales follow from.
struct Weight {
    PlannedModule module;
    WeightView view;
    std::vector<float> row_maxima;
    float second_scale = 1.0f;                // NVFP4
    float tensor_scale = 1.0f;                // FP8
    std::vector<uint16_t> block_scales_bf16;  // FP8 blocks
    std::vector<float> block_scales;
};

class OutputBuilder {
public:
    explicit OutputBuilder(const OutputSource& source) : source_(source), recipe_(source.plan.choices.recipe) {}

    Result<std::vector<TensorToWrite>> run() {
        TRY(measure());
        for (const auto& weight : weights_) TRY(add_weight(weight));
        for (const PlannedKv& kv : source_.plan.kv) {
            TRY(add_kv_scale(kv, model::ActivationSite::keys, ".k_proj.k_scale"));
            TRY(add_kv_scale(kv, model::ActivationSite::values, ".v_proj.v_scale"));
        }
        TRY(add_copies());
        const auto rank = [](const TensorToWrite& t) { return t.shape.empty() ? 0 : 8 - static_cast<int>(dtype_bytes(t.dtype)); };
        std::stable_sort(tensors_.begin(), tensors_.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
        return std::move(tensors_);
    }

private:
    // Reads every weight once; shares second-level scales among modules with one key.
    Status measure() {
        std::map<std::string, float> shared;
        for (const PlannedModule& module : source_.plan.modules) {
            auto weight = std::make_shared<Weight>();
            weight->module = module;
            TRY_ASSIGN(weight->view, source_.checkpoint.linear(module.source, module.n, module.k));
            TRY(source_.on_tensor(module.name));
            TRY(measure_weight(*weight));
            const float amax = *std::max_element(weight->row_maxima.begin(), weight->row_maxima.end());
            if (!std::isfinite(amax)) {
                return corrupt_data(fmt::format("{}: '{}.weight' holds NaN or infinity; fetch the checkpoint again",
                                                source_.checkpoint.path(), checkpoint::printable(module.name)));
            }
            weight->tensor_scale = fp8_scale(amax);
            float& group = shared[module.key];
            group = std::max(group, amax);
            weights_.push_back(std::move(weight));
        }
        for (const auto& weight : weights_) weight->second_scale = nvfp4_second_scale(shared[weight->module.key]);
        return {};
    }

    Status measure_weight(Weight& weight) const {
        const WeightView& view = weight.view;
        const int64_t n_blocks = (view.k + kFp8Block - 1) / kFp8Block;
        const bool has_blocks = recipe_ == Recipe::fp8_block;
        weight.row_maxima.resize(static_cast<size_t>(view.n));
        std::vector<float> maxima(has_blocks ? static_cast<size_t>(view.n * n_blocks) : 0);
        TRY(for_rows(
            source_, view,
            [&](int64_t row, const float* x) {
                weight.row_maxima[static_cast<size_t>(row)] = largest_magnitude(x, view.k);
                for (int64_t block = 0; has_blocks && block < n_blocks; ++block) {
                    const int64_t begin = block * kFp8Block;
                    maxima[static_cast<size_t>(row * n_blocks + block)] =
                        largest_magnitude(x + begin, std::min(kFp8Block, view.k - begin));
                }
            },
            [](int64_t, int64_t) { return Status(); }));
        if (!has_blocks) return {};
        for (int64_t row = 0; row < view.n; row += kFp8Block) {
            for (int64_t block = 0; block < n_blocks; ++block) {
                float amax = 0;
                for (int64_t r = row; r < std::min(view.n, row + kFp8Block); ++r)
                    amax = std::max(amax, maxima[static_cast<size_t>(r * n_blocks + block)]);
                weight.block_scales_bf16.push_back(fp8_block_scale(amax));
                weight.block_scales.push_back(std::bit_cast<float>(static_cast<uint32_t>(weight.block_scales_bf16.back()) << 16));
            }
        }
        return {};
    }

    Status add_weight(const std::shared_ptr<Weight>& weight) {
        const PlannedModule& module = weight->module;
        const std::string& name = module.file_name;
        TensorToWrite codes;
        codes.name = name + ".weight";
        if (is_nvfp4(recipe_)) {
            add_scalar(name + ".weight_scale_2", weight->second_scale);
            TensorToWrite scales;
            scales.name = name + ".weight_scale";
            scales.dtype = Dtype::f8_e4m3;
            scales.shape = {module.n, module.k / 16};
            scales.produce = [this, weight](const ByteSink& sink) {
                return stream(*weight, weight->module.k / 16, sink, [&](int64_t, const float* x, uint8_t* out) {
                    quantize_nvfp4_row(x, weight->module.k, weight->second_scale, out, nullptr);
                });
            };
            tensors_.push_back(std::move(scales));
            codes.dtype = Dtype::u8;
            codes.shape = {module.n, module.k / 2};
            codes.produce = [this, weight](const ByteSink& sink) {
                return stream(*weight, weight->module.k / 2, sink, [&](int64_t, const float* x, uint8_t* out) {
                    quantize_nvfp4_row(x, weight->module.k, weight->second_scale, nullptr, out);
                });
            };
        } else {
            codes.dtype = Dtype::f8_e4m3;
            codes.shape = {module.n, module.k};
            if (recipe_ == Recipe::fp8) {
                add_scalar(name + ".weight_scale", weight->tensor_scale);
            } else {
                tensors_.push_back(checkpoint::tensor_from_bytes(
                    name + ".weight_scale_inv", Dtype::bf16,
                    {(module.n + kFp8Block - 1) / kFp8Block, (module.k + kFp8Block - 1) / kFp8Block},
                    std::as_bytes(std::span(weight->block_scales_bf16))));
            }
            codes.produce = [this, weight](const ByteSink& sink) {
                return stream(*weight, weight->module.k, sink,
                              [&](int64_t row, const float* x, uint8_t* out) { quantize_fp8(*weight, row, x, out); });
            };
        }
        tensors_.push_back(std::move(codes));
        if (!has_input_scales(recipe_)) return {};
        TRY_ASSIGN(const float amax, source_.maxima.get(module.key));
        add_scalar(name + ".input_scale", recipe_ == Recipe::nvfp4 ? nvfp4_second_scale(amax) : fp8_scale(amax));
        return {};
    }

    void quantize_fp8(const Weight& weight, int64_t row, const float* x, uint8_t* out) const {
        const int64_t k = weight.module.k;
        if (recipe_ == Recipe::fp8) {
            const auto quotient = weight.view.layout == WeightLayout::bf16 ? Quotient::rounded_to_bf16 : Quotient::exact;
            return quantize_fp8_row(x, k, weight.tensor_scale, quotient, out);
        }
        const int64_t n_blocks = (k + kFp8Block - 1) / kFp8Block;
        for (int64_t block = 0; block < n_blocks; ++block) {
            const int64_t begin = block * kFp8Block;
            const float scale = weight.block_scales[static_cast<size_t>(row / kFp8Block * n_blocks + block)];
            quantize_fp8_row(x + begin, std::min(kFp8Block, k - begin), scale, Quotient::exact, out + begin);
        }
    }

    template <class Convert>
    Status stream(const Weight& weight, int64_t row_bytes, const ByteSink& sink, const Convert& convert) const {
        TRY(source_.on_tensor(weight.module.name));
        return stream_rows(source_, weight.view, row_bytes, sink, convert);
    }

    Status add_kv_scale(const PlannedKv& kv, model::ActivationSite site, std::string_view suffix) {
        TRY_ASSIGN(const float amax, source_.maxima.get(activation_key(kv.layer, site)));
        add_scalar(kv.file_name + std::string(suffix), fp8_scale(amax));
        return {};
    }

    void add_scalar(const std::string& name, float value) {
        tensors_.push_back(checkpoint::tensor_from_bytes(name, Dtype::f32, {}, std::as_bytes(std::span(&value, 1))));
    }

    // Everything that is not quantised, as it is.
    Status add_copies() {
        std::set<std::string> made;
        for (const TensorToWrite& tensor : tensors_) made.insert(tensor.name);
        for (const auto& [name, tensor] : source_.files.tensors) {
            if (made.contains(tensor.file_name)) continue;
            if (!tensor.dtype) {
                return unsupported(fmt::format("'{}' has type {}, which cannot be copied",
                                               checkpoint::printable(tensor.file_name),
                                               checkpoint::printable(tensor.dtype_name)));
            }
            TensorToWrite copy;
            copy.name = tensor.file_name;
            copy.dtype = *tensor.dtype;
            copy.shape = tensor.shape;
            copy.produce = [this, &tensor = tensor](const ByteSink& sink) { return copy_tensor(tensor, sink); };
            tensors_.push_back(std::move(copy));
        }
        return {};
    }

    Status copy_tensor(const checkpoint::StoredTensor& tensor, const ByteSink& sink) const {
        TRY(source_.on_tensor(tensor.name));
        const MappedFile& shard = source_.files.shards[static_cast<size_t>(tensor.shard)];
        const auto offset = static_cast<size_t>(tensor.data.data() - shard.bytes().data());
        for (size_t begin = 0; begin < tensor.data.size(); begin += kCopyBytes) {
            const size_t n = std::min(kCopyBytes, tensor.data.size() - begin);
            TRY(sink(tensor.data.subspan(begin, n)));
            shard.release(offset + begin, n);
        }
        return {};
    }

    const OutputSource& source_;
    Recipe recipe_;
    std::vector<std::shared_ptr<Weight>> weights_;
    std::vector<TensorToWrite> tensors_;
};

}  // namespace

Result<std::vector<TensorToWrite>> output_tensors(const OutputSource& source) {
    // The tensors' producers refer to the builder.
    auto builder = std::make_shared<OutputBuilder>(source);
    TRY_ASSIGN(std::vector<TensorToWrite> tensors, builder->run());
    for (TensorToWrite& tensor : tensors) {
        tensor.produce = [builder, produce = std::move(tensor.produce)](const ByteSink& sink) { return produce(sink); };
    }
    return tensors;
}

}  // namespace espalier::quant
