// A loaded Qwen3.5-family model: configuration, packed weights, constants. Immutable after load, shared by every sequence.
//
// Weight binding follows the checkpoint's logical names (see checkpoint/checkpoint.h); projections that read the same input
// are packed as one matrix when their layout allows, else they run one after another on the same prepared rows.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "cache/shape.h"
#include "checkpoint/checkpoint.h"
#include "kernels/dispatch.h"
#include "kernels/matmul/pack.h"
#include "model/config.h"

namespace espalier::model {

// Panels [begin, end) of a matrix: kernels::kPanelRows outputs each.
struct PanelRange {
    int64_t begin = 0;
    int64_t end = 0;
};

// Linear modules that share their input. Outputs stand side by side in one row, in the given order.
class LinearGroup {
public:
    // Errors: what packing or the checkpoint reports.
    static Result<LinearGroup> pack(std::vector<WeightView> views, kernels::Acts acts, kernels::Isa isa, ThreadPool& pool);

    int64_t width() const { return width_; }  // floats of an output row
    int64_t k() const { return matrices_.empty() ? 0 : matrices_.front().k(); }
    size_t bytes() const;
    size_t scratch_bytes(int64_t m) const;
    const std::vector<kernels::PackedMatrix>& matrices() const { return matrices_; }

    // y[m, width] = x[m, k] * W^T. scratch: scratch_bytes(m).
    void apply(const float* x, int64_t x_stride, int64_t m, float* y, int64_t y_stride, std::byte* scratch,
               ThreadPool& pool) const;

    // Only the outputs of some panels; others are left as they are. The group is one matrix (CHECK).
    void apply_panels(const float* x, float* y, std::span<const PanelRange> panels, std::byte* scratch, ThreadPool& pool) const;

    // The same in pieces, so that rows are converted by whoever makes them. First every row (and column) of x once, then
    // multiply. Converts a part of x into scratch, on the calling thread.
    void prepare(const kernels::MatmulRows& rows, const kernels::InputPart& part) const;
    void prepare_rows(const kernels::MatmulRows& rows, int64_t begin, int64_t end) const { prepare(rows, {begin, end, 0, k()}); }
    // Columns that prepare can convert apart from the others: multiples of this, or up to k. 0: only whole rows.
    int64_t input_columns() const { return input_columns_; }
    // Whether a matrix reads x itself, not only what prepare made of it.
    bool reads_floats() const { return reads_floats_; }
    // One region of the pool.
    void multiply(const kernels::MatmulRows& rows, ThreadPool& pool) const;
    // What multiply does for panels [begin, end) of one matrix, on the calling thread.
    void multiply_panels(size_t matrix, const kernels::MatmulRows& rows, int64_t begin, int64_t end) const;

private:
    // Matrices that read the same converted rows have the same offset.
    struct Part {
        int64_t column = 0;         // of y
        int64_t scratch_begin = 0;  // bytes of a row's conversions before this one
        bool is_first = true;       // of those with this conversion
    };
    void add(kernels::PackedMatrix matrix);
    kernels::MatmulRows rows_of(size_t matrix, const kernels::MatmulRows& rows) const;

    std::vector<kernels::PackedMatrix> matrices_;
    std::vector<Part> parts_;  // per matrix
    int64_t width_ = 0;
    int64_t row_scratch_bytes_ = 0;
    int64_t input_columns_ = 0;
    bool reads_floats_ = false;
};

struct AttentionWeights {
    LinearGroup qkv;  // [q and gate interleaved per head: n_heads * 2 * head_dim | k | v]
    LinearGroup o;
    std::vector<float> q_norm;  // [head_dim], effective (1 + w)
    std::vector<float> k_norm;
    float k_scale = 1.0f;  // FP8 KV
    float v_scale = 1.0f;
};

struct RecurrentWeights {
    LinearGroup in;  // [qkv | z | b | a]
    LinearGroup out;
    std::vector<float> conv;           // [4][conv_channels], tap-major
    std::vector<float> neg_exp_a_log;  // [n_value_heads]
    std::vector<float> dt_bias;        // [n_value_heads]
    std::vector<float> norm;           // [value_dim], plain
};

struct MlpWeights {
    LinearGroup gate_up;  // [gate | up]
    LinearGroup down;
};

struct LayerWeights {
    std::vector<float> input_norm;                // effective
    std::vector<float> post_norm;                 // effective
    std::unique_ptr<AttentionWeights> attention;  // exactly one of the two
    std::unique_ptr<RecurrentWeights> recurrent;
    MlpWeights mlp;
    int32_t kv_index = -1;         // among attention layers
    int32_t recurrent_index = -1;  // among recurrent layers
};

struct MtpWeights {
    std::vector<float> embedding_norm;  // effective
    std::vector<float> hidden_norm;     // effective
    std::vector<float> norm;            // effective
    LinearGroup fc;                     // [hidden, 2 * hidden]: columns embedding | hidden
    LayerWeights layer;
};

// A part of a model, for tools that stream one through memory. By default everything.
struct ModelPart {
    int32_t layer_begin = 0;
    int32_t layer_end = INT32_MAX;  // cut at the number of layers
    bool has_embedding = true;
    bool has_head = true;
    bool has_mtp = true;

    bool is_whole() const { return layer_begin == 0 && layer_end == INT32_MAX && has_embedding && has_head && has_mtp; }
};

struct LoadOptions {
    kernels::Acts acts = kernels::Acts::a32;
    std::optional<kernels::KvType> kv;  // empty = auto
    kernels::Isa isa = kernels::Isa::scalar;
    // Called with bytes packed so far and in all; may be empty.
    std::function<void(int64_t done, int64_t total)> progress;
    ModelPart part;
};

class Model {
public:
    // Binds and packs every weight. The checkpoint may be closed afterwards unless embeddings are read from it, so the model
    // keeps it. Errors: by tensor name, with expected and found.
    static Result<std::unique_ptr<const Model>> load(std::unique_ptr<checkpoint::Checkpoint> checkpoint,
                                                     const LoadOptions& options, ThreadPool& pool);

    const ModelConfig& config() const { return config_; }
    const kernels::KernelTable& kernels() const { return *kernels_; }
    kernels::Acts acts() const { return acts_; }
    const std::vector<LayerWeights>& layers() const { return layers_; }  // those loaded: all, or a part's
    const std::vector<float>& final_norm() const { return final_norm_; }
    const LinearGroup& head() const { return head_; }
    const MtpWeights* mtp() const { return mtp_.get(); }
    const std::vector<float>& inverse_frequencies() const { return inverse_frequencies_; }  // [rotary_dim / 2]
    const cache::StateShape& state_shape() const { return state_shape_; }
    // Attention layers of the trunk: state_shape() counts the MTP layer too.
    int32_t n_trunk_kv_layers() const { return state_shape_.n_kv_layers - (mtp_ != nullptr ? 1 : 0); }
    const checkpoint::Checkpoint& checkpoint() const { return *checkpoint_; }
    size_t weight_bytes() const { return weight_bytes_; }
    // Every id that ends a reply by the model's own files (config and generation_config).
    const std::vector<int32_t>& eos_ids() const { return eos_ids_; }

    // The embedding row of a token as floats. out: [hidden]. token < vocab.
    void embed(int32_t token, float* out) const;

private:
    Model() = default;
    friend class ModelLoader;

    ModelConfig config_;
    const kernels::KernelTable* kernels_ = nullptr;
    kernels::Acts acts_ = kernels::Acts::a32;
    std::unique_ptr<checkpoint::Checkpoint> checkpoint_;
    std::vector<LayerWeights> layers_;
    std::vector<float> final_norm_;
    LinearGroup head_;
    std::unique_ptr<MtpWeights> mtp_;
    std::optional<WeightView> embedding_;  // absent: rows are unpacked from the tied head
    std::vector<float> inverse_frequencies_;
    cache::StateShape state_shape_;
    std::vector<int32_t> eos_ids_;
    size_t weight_bytes_ = 0;
};

}  // namespace espalier::model
