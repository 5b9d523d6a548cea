// Reference commands that run a model in process: `espalier eval logits|layers|linear|state|tree|mtp|greedy|sample`.
// They need nothing beside the weights and ignore stop ids. Shapes of their files: docs/CLI, and CLI help.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "decode/sampler.h"
#include "engine/load.h"
#include "model/forward.h"

namespace espalier::probe {

using cache::TokenId;

struct EvalOptions {
    engine::ModelOptions model;
    std::string ids_path;  // JSON array of token ids
};

// A model with one sequence, ready to run.
class EvalSession {
public:
    // context_tokens: how long a sequence may become. n_sequences: that may live at the same time. Errors: of loading.
    static Result<std::unique_ptr<EvalSession>> open(const engine::ModelOptions& options, int32_t context_tokens,
                                                     int32_t n_sequences = 1);

    const model::Model& model() const { return *loaded_.model; }
    model::Forward& forward() { return *forward_; }
    cache::Sequence& sequence() { return *sequence_; }
    ThreadPool& pool() { return *loaded_.pool; }
    cache::Memory& memory() { return *memory_; }
    int32_t vocab() const { return model().config().vocab; }

    // Checks that ids are below the vocabulary size and fit the context. Errors: invalid_input.
    Status check(std::span<const TokenId> ids) const;
    // Appends ids as one committed chain, in pieces of the given sizes (the last repeats; empty = as large as possible).
    // each(begin, n) is called after each piece's forward, before its commit.
    template <class Each>
    Status feed(std::span<const TokenId> ids, std::span<const int32_t> chunks, const Each& each);
    Status feed(std::span<const TokenId> ids) {
        return feed(ids, {}, [](int32_t, int32_t) {});
    }

private:
    EvalSession() = default;
    engine::LoadedModel loaded_;
    std::unique_ptr<cache::Memory> memory_;
    std::unique_ptr<model::Forward> forward_;
    std::optional<cache::Sequence> sequence_;
};

template <class Each>
Status EvalSession::feed(std::span<const TokenId> ids, std::span<const int32_t> chunks, const Each& each) {
    TRY(check(ids));
    size_t chunk = 0;
    for (size_t begin = 0; begin < ids.size();) {
        size_t n = static_cast<size_t>(forward_->limits().rows_max);
        if (!chunks.empty()) n = std::min(n, static_cast<size_t>(chunks[std::min(chunk++, chunks.size() - 1)]));
        n = std::min(n, ids.size() - begin);
        const model::Segment segment{&*sequence_, ids.subspan(begin, n), {}, static_cast<int32_t>(n)};
        TRY(forward_->run({&segment, 1}));
        each(static_cast<int32_t>(begin), static_cast<int32_t>(n));
        forward_->commit_spine(0);
        begin += n;
    }
    return {};
}

// Token ids from a file holding a JSON array of integers.
Result<std::vector<TokenId>> read_ids(const std::string& path);
// "7,1,64" -> {7, 1, 64}; entries >= 1.
Result<std::vector<int32_t>> parse_chunks(const std::string& text);

enum class Positions { all, last };
Status eval_logits(const EvalOptions& options, const std::string& out, const std::string& chunks, Positions positions);

struct LayersOptions {
    int32_t layer = -1;   // -1 = all layers
    std::string in_path;  // with layer: its input rows
};
Status eval_layers(const EvalOptions& options, const LayersOptions& layers, const std::string& out);
Status eval_linear(const engine::ModelOptions& options, const std::string& module, const std::string& in, const std::string& out);
Status eval_state(const EvalOptions& options, const std::string& out_dir);

struct TreeOptions {
    std::string tree_path;
    std::string commit;     // "n0,n1,…", empty = logits per node
    std::string then_path;  // ids appended one by one after the commit
};
Status eval_tree(const EvalOptions& options, const TreeOptions& tree, const std::string& out);
Status eval_mtp(const EvalOptions& options, int32_t steps, std::optional<TokenId> next, const std::string& out);

struct GenerateOptions {
    int32_t n_tokens = 64;
    decode::SamplerParams sampling;
    bool as_object = false;  // {"ids", "rounds", "drafted", "accepted", "sources"} instead of a bare array
    std::string draft = "off";
};
// Returns the line to print.
Result<std::string> eval_generate(const EvalOptions& options, const GenerateOptions& generate);

}  // namespace espalier::probe
