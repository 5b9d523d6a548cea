#include "probe/eval_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "base/json.h"
#include "base/mapped_file.h"
#include "decode/merged_drafts.h"
#include "decode/step_loop.h"
#include "kernels/quantize/formats.h"
#include "model/mtp.h"
#include "probe/draft_replay.h"
#include "probe/npy.h"

namespace espalier::probe {
namespace {

constexpr int32_t kGenerateMax = 1 << 18;
constexpr int32_t kLayerRowsMax = 1 << 14;

Error not_finite(const std::string& path) {
    return corrupt_data(fmt::format("{}: the logits are not finite numbers: the weights are damaged", path));
}

// Keys or values in KV type as floats. scale: of FP8.
float kv_value(const cache::StateShape& shape, const std::byte* block, int64_t index, float scale) {
    switch (shape.kv) {
        case kernels::KvType::f32: return reinterpret_cast<const float*>(block)[index];
        case kernels::KvType::bf16: return kernels::decode_bf16(reinterpret_cast<const uint16_t*>(block)[index]);
        case kernels::KvType::fp8: return kernels::decode_e4m3(static_cast<uint8_t>(block[index])) * scale;
    }
    return 0;
}

// [attention layers of the trunk][kv heads][positions][head_dim] in one array each.
Status write_keys_and_values(EvalSession& session, const std::string& out_dir) {
    const cache::StateShape& shape = session.memory().shape();
    const int32_t n = session.sequence().length();
    std::vector<float> keys;
    std::vector<float> values;
    int64_t n_layers = 0;
    for (const model::LayerWeights& layer : session.model().layers()) {
        if (!layer.attention) continue;
        ++n_layers;
        for (int32_t head = 0; head < shape.n_kv_heads; ++head) {
            for (int32_t position = 0; position < n; ++position) {
                const int32_t page = session.sequence().page(position / cache::kPageTokens);
                const int32_t lane = position % cache::kPageTokens;
                const std::byte* k = session.memory().k_block(page, layer.kv_index, head);
                const std::byte* v = session.memory().v_block(page, layer.kv_index, head);
                for (int32_t d = 0; d < shape.head_dim; ++d) {
                    keys.push_back(kv_value(shape, k, d * cache::kPageTokens + lane, layer.attention->k_scale));
                    values.push_back(kv_value(shape, v, lane * shape.head_dim + d, layer.attention->v_scale));
                }
            }
        }
    }
    const int64_t kv_shape[] = {n_layers, shape.n_kv_heads, n, shape.head_dim};
    TRY(write_npy(out_dir + "/k.npy", kv_shape, keys));
    return write_npy(out_dir + "/v.npy", kv_shape, values);
}

}  // namespace

Result<std::unique_ptr<EvalSession>> EvalSession::open(const engine::ModelOptions& options, int32_t context_tokens,
                                                       int32_t n_sequences) {
    std::unique_ptr<EvalSession> session(new EvalSession());
    TRY_ASSIGN(session->loaded_, engine::load_model(options));
    const int32_t n_pages = n_sequences * (context_tokens / cache::kPageTokens + 4);
    TRY_ASSIGN(cache::Memory memory, cache::Memory::create(session->model().state_shape(), {n_pages, 3 + n_sequences}));
    session->memory_ = std::make_unique<cache::Memory>(std::move(memory));
    model::PassLimits limits;
    limits.context_tokens = context_tokens;
    TRY_ASSIGN(session->forward_, model::Forward::create(session->model(), *session->memory_, *session->loaded_.pool, limits));
    TRY_ASSIGN(session->sequence_, cache::Sequence::create(*session->memory_, context_tokens));
    return session;
}

Status EvalSession::check(std::span<const TokenId> ids) const {
    for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < 0 || ids[i] >= vocab()) {
            return invalid_input(fmt::format("token id {} at index {} is outside the vocabulary of {}", ids[i], i, vocab()));
        }
    }
    return {};
}

Result<std::vector<TokenId>> read_ids(const std::string& path) {
    TRY_ASSIGN(const std::string text, read_file(path, size_t{64} << 20));
    TRY_ASSIGN(const Json json, parse_json(text, path));
    if (!json.is_array()) return invalid_input(fmt::format("{}: expected a JSON array of token ids", path));
    std::vector<TokenId> ids;
    for (const Json& id : json) {
        const bool fits = id.is_number_integer() && (!id.is_number_unsigned() || id.get<uint64_t>() <= INT32_MAX) &&
                          id.get<int64_t>() >= 0 && id.get<int64_t>() <= INT32_MAX;
        if (!fits) return invalid_input(fmt::format("{}: element {} is no token id", path, ids.size()));
        ids.push_back(id.get<TokenId>());
    }
    if (ids.empty()) return invalid_input(fmt::format("{}: the list of token ids is empty", path));
    return ids;
}

Result<std::vector<int32_t>> parse_chunks(const std::string& text) {
    std::vector<int32_t> chunks;
    for (size_t begin = 0; begin < text.size();) {
        const size_t end = std::min(text.find(',', begin), text.size());
        const std::string part = text.substr(begin, end - begin);
        const bool is_number = !part.empty() && part.size() <= 8 && part.find_first_not_of("0123456789") == std::string::npos;
        if (!is_number) return invalid_input(fmt::format("\"{}\" in \"{}\" is no count", part, text));
        chunks.push_back(std::stoi(part));
        begin = end + 1;
    }
    return chunks;
}

Status eval_logits(const EvalOptions& options, const std::string& out, const std::string& chunks_text, Positions positions) {
    TRY_ASSIGN(const std::vector<TokenId> ids, read_ids(options.ids_path));
    TRY_ASSIGN(const std::vector<int32_t> chunks, parse_chunks(chunks_text));
    if (std::find(chunks.begin(), chunks.end(), 0) != chunks.end())
        return invalid_input("--chunks: a chunk has at least one token");
    TRY_ASSIGN(auto session, EvalSession::open(options.model, static_cast<int32_t>(ids.size())));
    const auto vocab = static_cast<size_t>(session->vocab());
    const size_t n_rows = positions == Positions::all ? ids.size() : 1;
    std::vector<float> logits(n_rows * vocab);
    TRY(session->feed(ids, chunks, [&](int32_t begin, int32_t n) {
        if (positions == Positions::all) session->forward().logits(0, 0, n, logits.data() + static_cast<size_t>(begin) * vocab);
        else session->forward().logits(0, n - 1, 1, logits.data());
    }));
    if (!std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }))
        return not_finite(options.model.path);
    const int64_t shape[] = {static_cast<int64_t>(n_rows), static_cast<int64_t>(vocab)};
    return write_npy(out, shape, logits);
}

Status eval_layers(const EvalOptions& options, const LayersOptions& layers, const std::string& out) {
    if (layers.layer >= 0) {
        TRY_ASSIGN(NpyArray in, read_npy(layers.in_path));
        TRY_ASSIGN(auto session, EvalSession::open(options.model, kLayerRowsMax));
        const int64_t hidden = session->model().config().hidden;
        if (in.shape.size() != 2 || in.shape[1] != hidden || in.shape[0] < 1 || in.shape[0] > kLayerRowsMax) {
            return invalid_input(fmt::format("{}: expected [1 to {}, {}]", layers.in_path, kLayerRowsMax, hidden));
        }
        if (layers.layer >= session->model().config().n_layers) {
            return invalid_input(
                fmt::format("--layer is {}, the model has {} layers", layers.layer, session->model().config().n_layers));
        }
        for (int64_t begin = 0; begin < in.shape[0]; begin += session->forward().limits().rows_max) {
            const int64_t n = std::min<int64_t>(session->forward().limits().rows_max, in.shape[0] - begin);
            const auto rows = std::span(in.values).subspan(static_cast<size_t>(begin * hidden), static_cast<size_t>(n * hidden));
            TRY(session->forward().run_layer(layers.layer, session->sequence(), rows));
            session->forward().commit_spine(0);
        }
        return write_npy(out, in.shape, in.values);
    }
    TRY_ASSIGN(const std::vector<TokenId> ids, read_ids(options.ids_path));
    TRY_ASSIGN(auto session, EvalSession::open(options.model, static_cast<int32_t>(ids.size())));
    const model::ModelConfig& config = session->model().config();
    const int64_t shape[] = {config.n_layers + 1, static_cast<int64_t>(ids.size()), config.hidden};
    std::vector<float> states(static_cast<size_t>(shape[0] * shape[1] * shape[2]));
    int64_t begin_row = 0;
    session->forward().set_tap([&](int32_t index, std::span<const float> rows) {
        std::copy(rows.begin(), rows.end(), states.begin() + (index * shape[1] + begin_row) * shape[2]);
    });
    TRY(session->feed(ids, {}, [&](int32_t, int32_t n) { begin_row += n; }));
    return write_npy(out, shape, states);
}

Status eval_state(const EvalOptions& options, const std::string& out_dir) {
    TRY_ASSIGN(const std::vector<TokenId> ids, read_ids(options.ids_path));
    TRY_ASSIGN(auto session, EvalSession::open(options.model, static_cast<int32_t>(ids.size())));
    std::error_code failed;
    std::filesystem::create_directories(out_dir, failed);
    if (failed) return invalid_input(fmt::format("{}: cannot create the folder: {}", out_dir, failed.message()));
    TRY(session->feed(ids));
    const cache::StateShape& shape = session->memory().shape();
    cache::Memory& memory = session->memory();
    const int32_t state = session->sequence().state();
    const int64_t n_recurrent = shape.n_recurrent_layers;
    std::vector<float> recurrent;
    std::vector<float> conv;
    for (int32_t layer = 0; layer < n_recurrent; ++layer) {
        const float* values = memory.recurrent(state, layer);
        recurrent.insert(recurrent.end(), values, values + shape.recurrent_floats_per_layer());
        const float* columns = memory.conv(state, layer);
        for (int32_t c = 0; c < shape.conv_channels; ++c) {
            conv.push_back(0.0f);  // the oldest of four columns is not needed and not kept
            for (int32_t column = 0; column < cache::kConvColumns; ++column)
                conv.push_back(columns[column * shape.conv_channels + c]);
        }
    }
    const int64_t conv_shape[] = {n_recurrent, shape.conv_channels, 4};
    const int64_t recurrent_shape[] = {n_recurrent, shape.n_value_heads, shape.key_dim, shape.value_dim};
    TRY(write_npy(out_dir + "/conv.npy", conv_shape, conv));
    TRY(write_npy(out_dir + "/recurrent.npy", recurrent_shape, recurrent));
    return write_keys_and_values(*session, out_dir);
}

Result<std::string> eval_generate(const EvalOptions& options, const GenerateOptions& generate) {
    TRY_ASSIGN(std::vector<TokenId> ids, read_ids(options.ids_path));
    if (generate.n_tokens < 1 || generate.n_tokens > kGenerateMax) {
        return invalid_input(fmt::format("-n is {}, expected 1 to {}", generate.n_tokens, kGenerateMax));
    }
    TRY(decode::check_params(generate.sampling));
    const auto context = static_cast<int32_t>(ids.size()) + generate.n_tokens;
    TRY_ASSIGN(auto session, EvalSession::open(options.model, context));
    TRY(session->check(ids));
    TRY_ASSIGN(auto loop, decode::StepLoop::create(session->forward(), session->vocab()));
    decode::Drafting::Parts parts;
    TRY_ASSIGN(parts.options, decode::DraftOptions::parse(generate.draft));
    decode::Drafting drafting(std::move(parts));
    if (!drafting.options().is_off()) {
        TRY(drafting.attach(session->forward(), session->vocab()));
        loop->set_cost_model(&drafting.cost());
    }
    decode::GenerationParams params;
    params.sampling = generate.sampling;
    params.max_tokens = generate.n_tokens;
    decode::Generation generation(std::move(session->sequence()), std::move(ids), std::move(params), nullptr);
    generation.set_drafts(drafting.begin({generation.prompt(), generate.n_tokens, nullptr, {}, &generation.sequence()}));
    decode::Generation* const pointer = &generation;
    while (!generation.is_done()) TRY(loop->step({&pointer, 1}, session->forward().limits().rows_max, {}));
    if (generation.reason() == decode::EndReason::broken) return not_finite(options.model.path);
    const Json reply(std::vector<TokenId>(generation.reply().begin(), generation.reply().end()));
    if (!generate.as_object) return dump_json(reply);
    const decode::DraftCounts& counts = generation.draft_counts;
    return dump_json(Json{{"ids", reply},
                          {"rounds", generation.rounds},
                          {"drafted", counts.drafted},
                          {"accepted", counts.accepted},
                          {"sources", draft_sources_json(counts)}});
}

}  // namespace espalier::probe
