// eval tree, eval mtp, eval linear: the parts of the reference commands that go beyond a plain chain.
#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/mapped_file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/names.h"
#include "kernels/sample/sample.h"
#include "model/mtp.h"
#include "probe/eval_model.h"
#include "probe/npy.h"

namespace espalier::probe {
namespace {

struct Tree {
    std::vector<TokenId> tokens;
    std::vector<int32_t> parents;
};

Result<Tree> read_tree(const std::string& path) {
    TRY_ASSIGN(const std::string text, read_file(path, size_t{1} << 20));
    TRY_ASSIGN(const Json json, parse_json(text, path));
    const auto wrong = [&](const char* what) { return invalid_input(fmt::format("{}: {}", path, what)); };
    if (!json.is_object() || !json.contains("tokens") || !json.contains("parents"))
        return wrong("expected {\"tokens\": [...], \"parents\": [...]}");
    Tree tree;
    for (const char* field : {"tokens", "parents"}) {
        if (!json[field].is_array()) return wrong("tokens and parents are arrays");
        for (const Json& value : json[field]) {
            if (!value.is_number_integer() || value.get<int64_t>() < -1 || value.get<int64_t>() > INT32_MAX)
                return wrong("a value is no node or token id");
            (field[0] == 't' ? tree.tokens : tree.parents).push_back(value.get<int32_t>());
        }
    }
    if (tree.tokens.empty() || tree.tokens.size() != tree.parents.size())
        return wrong("tokens and parents have the same length, at least 1");
    if (tree.parents[0] != -1) return wrong("node 0 is the root: its parent is -1");
    return tree;
}

TokenId argmax(const EvalSession& session, const float* logits) {
    float value = 0;
    int64_t index = 0;
    session.model().kernels().argmax({logits, session.vocab(), &value, &index});
    return static_cast<TokenId>(index);
}

// Commits the path, then feeds ids one by one and collects their logits.
Status tree_then(EvalSession& session, const TreeOptions& options, const std::string& out) {
    TRY_ASSIGN(const std::vector<int32_t> path, parse_chunks(options.commit));
    if (path.empty() || path[0] != 0) return invalid_input("--commit: the path begins with node 0");
    TRY_ASSIGN(const Tree tree, read_tree(options.tree_path));
    for (size_t i = 1; i < path.size(); ++i) {
        const auto node = static_cast<size_t>(path[i]);
        if (node >= tree.tokens.size() || tree.parents[node] != path[i - 1]) {
            return invalid_input(fmt::format("--commit: node {} is no child of node {}", path[i], path[i - 1]));
        }
    }
    TRY_ASSIGN(const std::vector<TokenId> then, read_ids(options.then_path));
    session.forward().commit_spine(0);
    TRY(session.forward().commit_path(0, std::span(path).subspan(1)));
    const auto vocab = static_cast<size_t>(session.vocab());
    std::vector<float> logits(then.size() * vocab);
    const int32_t one[] = {1};
    TRY(session.feed(then, one, [&](int32_t begin, int32_t) {
        session.forward().logits(0, 0, 1, logits.data() + static_cast<size_t>(begin) * vocab);
    }));
    const int64_t shape[] = {static_cast<int64_t>(then.size()), static_cast<int64_t>(vocab)};
    return write_npy(out, shape, logits);
}

}  // namespace

Status eval_tree(const EvalOptions& options, const TreeOptions& tree_options, const std::string& out) {
    TRY_ASSIGN(const std::vector<TokenId> ids, read_ids(options.ids_path));
    TRY_ASSIGN(const Tree tree, read_tree(tree_options.tree_path));
    constexpr int32_t kThenMax = 4096;
    const auto context = static_cast<int32_t>(ids.size() + tree.tokens.size()) + kThenMax;
    TRY_ASSIGN(auto session, EvalSession::open(options.model, context));
    TRY(session->check(tree.tokens));
    TRY(session->feed(ids));
    const model::Segment segment{&session->sequence(), tree.tokens, tree.parents, 1};
    TRY(session->forward().run({&segment, 1}));
    if (!tree_options.commit.empty()) return tree_then(*session, tree_options, out);
    const int64_t shape[] = {static_cast<int64_t>(tree.tokens.size()), session->vocab()};
    std::vector<float> logits(static_cast<size_t>(shape[0] * shape[1]));
    session->forward().logits(0, 0, static_cast<int32_t>(shape[0]), logits.data());
    return write_npy(out, shape, logits);
}

Status eval_mtp(const EvalOptions& options, int32_t steps, std::optional<TokenId> next, const std::string& out) {
    if (steps < 1 || steps > 256) return invalid_input(fmt::format("--steps is {}, expected 1 to 256", steps));
    TRY_ASSIGN(const std::vector<TokenId> ids, read_ids(options.ids_path));
    const auto n = static_cast<int32_t>(ids.size());
    TRY_ASSIGN(auto session, EvalSession::open(options.model, n + steps));
    if (session->model().mtp() == nullptr)
        return invalid_input(fmt::format("{}: the checkpoint has no MTP head (no mtp.* tensors)", options.model.path));
    const auto vocab = static_cast<size_t>(session->vocab());
    const auto hidden = static_cast<size_t>(session->model().config().hidden);
    std::vector<float> hidden_rows(static_cast<size_t>(n) * hidden);
    std::vector<float> row(vocab);
    TRY(session->feed(ids, {}, [&](int32_t begin, int32_t count) {
        for (int32_t i = 0; i < count; ++i) {
            const float* from = session->forward().hidden(0, i);
            std::copy(from, from + hidden,
                      hidden_rows.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(begin + i) * hidden));
        }
        session->forward().logits(0, count - 1, 1, row.data());
    }));
    TokenId token = next.value_or(argmax(*session, row.data()));
    const TokenId chosen[] = {token};
    TRY(session->check(chosen));

    // Prefill: slot p pairs hidden p with token p + 1; the last one with the chosen token. Pieces are kept as they come.
    TRY_ASSIGN(auto head, model::MtpHead::create(session->forward()));
    std::vector<TokenId> shifted(ids.begin() + 1, ids.end());
    shifted.push_back(token);
    std::vector<float> prefill(static_cast<size_t>(n) * vocab);
    const int32_t piece_max = session->forward().limits().rows_max;
    std::vector<float> last_hidden(hidden);
    for (int32_t begin = 0; begin < n; begin += piece_max) {
        const int32_t count = std::min(piece_max, n - begin);
        head->start(session->sequence());
        TRY(head->extend(std::span(shifted).subspan(static_cast<size_t>(begin), static_cast<size_t>(count)),
                         hidden_rows.data() + static_cast<size_t>(begin) * hidden));
        head->logits(0, count, prefill.data() + static_cast<size_t>(begin) * vocab);
        std::copy_n(head->output(count - 1), hidden, last_hidden.begin());
        TRY(head->keep(count));
    }
    // Recursion: the head's own output and its own choice.
    std::vector<float> drafts(prefill.end() - static_cast<std::ptrdiff_t>(vocab), prefill.end());
    head->start(session->sequence());
    for (int32_t step = 1; step < steps; ++step) {
        token = argmax(*session, drafts.data() + (static_cast<size_t>(step) - 1) * vocab);
        TRY(head->extend({&token, 1}, last_hidden.data()));
        std::copy_n(head->output(step - 1), hidden, last_hidden.begin());
        drafts.resize((static_cast<size_t>(step) + 1) * vocab);
        head->logits(step - 1, 1, drafts.data() + static_cast<size_t>(step) * vocab);
    }
    const int64_t prefill_shape[] = {n, static_cast<int64_t>(vocab)};
    const int64_t draft_shape[] = {steps, static_cast<int64_t>(vocab)};
    TRY(write_npy(out, prefill_shape, prefill));
    const std::string stem = out.ends_with(".npy") ? out.substr(0, out.size() - 4) : out;
    return write_npy(stem + ".draft.npy", draft_shape, drafts);
}

Status eval_linear(const engine::ModelOptions& options, const std::string& module, const std::string& in,
                   const std::string& out) {
    TRY_ASSIGN(const NpyArray x, read_npy(in));
    if (x.shape.size() != 2 || x.shape[0] < 1) return invalid_input(fmt::format("{}: expected [rows, inputs]", in));
    TRY_ASSIGN(auto checkpoint, checkpoint::Checkpoint::open(options.path));
    const std::string name(checkpoint::normalise_name(module));
    int64_t n = 0;
    for (const auto& tensor : checkpoint->tensors()) {
        if ((tensor.name == name + ".weight" || tensor.name == name + ".weight_packed") && tensor.shape.size() == 2)
            n = tensor.shape[0];
    }
    if (n == 0) return invalid_input(fmt::format("{}: no linear module \"{}\"", options.path, module));
    TRY_ASSIGN(WeightView view, checkpoint->linear(name, n, x.shape[1]));
    TRY_ASSIGN(const kernels::Acts acts, engine::parse_acts(options.acts));
    TRY_ASSIGN(const kernels::Isa isa, kernels::choose_isa(options.isa));
    TRY_ASSIGN(auto pool, engine::make_pool(options.n_threads));
    TRY_ASSIGN(const model::LinearGroup group, model::LinearGroup::pack({std::move(view)}, acts, isa, *pool));
    const int64_t m = x.shape[0];
    TRY_ASSIGN(Buffer scratch, Buffer::allocate(std::max<size_t>(64, group.scratch_bytes(m))));
    std::vector<float> y(static_cast<size_t>(m * n));
    group.apply(x.values.data(), x.shape[1], m, y.data(), n, scratch.data(), *pool);
    const int64_t shape[] = {m, n};
    return write_npy(out, shape, y);
}

}  // namespace espalier::probe
