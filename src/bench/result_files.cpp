// Names, nesting and order follow mlcommons/endpoints (commit ea332753), so that its checkers and plots read these files.
#include "bench/result_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "bench/statistics.h"

namespace espalier::bench {
namespace {

constexpr std::string_view kFinishReasons[] = {"stop", "length", "tool_calls", "content_filter", "function_call", "other"};

std::string ms_text(std::optional<int64_t> ns) {
    return ns ? fmt::format("{:.3f}", static_cast<double>(*ns) / 1e6) : "";
}
std::string count_text(std::optional<int64_t> count) {
    return count ? std::to_string(*count) : "";
}

std::string csv_text(const std::string& text) {
    if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
    std::string quoted = "\"";
    for (const char c : text) {
        quoted += c;
        if (c == '"') quoted += '"';
    }
    return quoted + '"';
}

std::optional<int64_t> since(const TurnRecord& turn, std::optional<int64_t> ns) {
    return ns ? std::optional(*ns - turn.issued_ns) : std::nullopt;
}

Json finish_counts(std::span<const TurnRecord> turns) {
    Json counts = Json::object();
    for (const std::string_view reason : kFinishReasons) counts[std::string(reason)] = 0;
    for (const TurnRecord& turn : turns) {
        const std::string& reason = turn.reply.finish_reason;
        if (!turn.is_ok() || reason.empty()) continue;
        const bool is_known = std::ranges::find(kFinishReasons, reason) != std::end(kFinishReasons);
        const std::string key = is_known ? reason : "other";
        counts[key] = counts[key].get<int64_t>() + 1;
    }
    return counts;
}

Json run_config(const RunInfo& info) {
    return {{"load_pattern", {{"type", "agentic_inference"}, {"target_qps", nullptr}, {"target_concurrency", info.concurrency}}},
            {"warmup", {{"enabled", false}}},
            {"scheduler_random_seed", 42},
            {"dataloader_random_seed", 42}};
}

struct SeriesSet {
    std::vector<int64_t> ttft, latency, output, input;
    std::vector<double> tpot;
};

SeriesSet collect(std::span<const TurnRecord> turns) {
    SeriesSet set;
    for (const TurnRecord& turn : turns) {
        set.latency.push_back(turn.latency_ns());
        if (turn.prompt_tokens) set.input.push_back(*turn.prompt_tokens);
        if (const auto ttft = turn.ttft_ns()) set.ttft.push_back(*ttft);
        if (!turn.is_ok()) continue;
        if (turn.output_tokens) set.output.push_back(*turn.output_tokens);
        if (const auto tpot = turn.tpot_ns()) set.tpot.push_back(*tpot);
    }
    return set;
}

Json event(std::string_view type, int64_t timestamp_ns, const TurnRecord* turn, Json data) {
    Json line{{"event_type", type},
              {"timestamp_ns", timestamp_ns},
              {"sample_uuid", turn != nullptr ? turn->sample_uuid : ""},
              {"conversation_id", turn != nullptr ? turn->conversation : ""},
              {"turn", turn != nullptr ? Json(turn->turn) : Json()},
              {"data", std::move(data)}};
    return line;
}

// ["TextModelOutput", output, reasoning, tool_calls], trailing defaults left out; a streamed text is [first chunk, rest].
Json output_data(const StreamedReply& reply) {
    const auto chunks = [&](const std::string& text) {
        Json list = Json::array();
        if (text.empty()) return list;
        list.push_back(text.substr(0, reply.first_chunk_bytes));
        if (text.size() > reply.first_chunk_bytes) list.push_back(text.substr(reply.first_chunk_bytes));
        return list;
    };
    const bool is_reasoning_first = reply.first_chunk == FirstChunk::reasoning;
    Json output = reply.content;
    if (reply.first_chunk == FirstChunk::content) output = chunks(reply.content);
    Json data = Json::array({"TextModelOutput", std::move(output)});
    if (!reply.reasoning.empty()) data.push_back(is_reasoning_first ? chunks(reply.reasoning) : Json(reply.reasoning));
    if (!reply.has_tool_calls()) return data;
    if (reply.reasoning.empty()) data.push_back(nullptr);
    data.push_back(reply.tool_calls());
    return data;
}

}  // namespace

std::optional<int64_t> TurnRecord::ttft_ns() const {
    return since(*this, reply.first_chunk_ns);
}

std::optional<double> TurnRecord::tpot_ns() const {
    if (!reply.first_chunk_ns || tokens_after_first.value_or(0) <= 0) return std::nullopt;
    return static_cast<double>(complete_ns - *reply.first_chunk_ns) / static_cast<double>(*tokens_after_first);
}

Json assistant_reply(const StreamedReply& reply) {
    Json message{{"role", "assistant"}, {"content", reply.content}};
    if (!reply.reasoning.empty()) message["reasoning_content"] = reply.reasoning;
    if (reply.has_tool_calls()) message["tool_calls"] = reply.tool_calls();
    return message;
}

std::string_view turns_csv_header() {
    return "conversation,turn,prompt_tokens,cached_tokens,new_tokens,output_tokens,ttft_ms,first_delta_ms,total_ms,drafted,"
           "accepted,"
           "rounds,iou\n";
}

std::string turns_csv_row(const TurnRecord& turn) {
    const ServerCounts& counts = turn.reply.counts;
    const std::string iou = turn.iou ? fmt::format("{:.4f}", *turn.iou) : "";
    return fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{}\n", csv_text(turn.conversation), turn.turn,
                       count_text(turn.prompt_tokens), count_text(counts.cached_tokens), count_text(turn.new_tokens),
                       count_text(turn.output_tokens), ms_text(turn.ttft_ns()), ms_text(since(turn, turn.reply.first_delta_ns)),
                       ms_text(turn.latency_ns()), count_text(counts.drafted), count_text(counts.accepted),
                       count_text(counts.rounds), iou);
}

std::string replies_line(const TurnRecord& turn) {
    Json line{{"conversation", turn.conversation}, {"turn", turn.turn}, {"content", turn.reply.content}};
    if (!turn.reply.reasoning.empty()) line["reasoning_content"] = turn.reply.reasoning;
    line["tool_calls"] = turn.reply.tool_calls();
    line["finish_reason"] = turn.reply.finish_reason.empty() ? Json() : Json(turn.reply.finish_reason);
    if (!turn.is_ok()) line["error"] = {{"kind", turn.fault}, {"message", turn.detail}};
    if (turn.reply.n_malformed > 0) line["malformed_frames"] = turn.reply.n_malformed;
    return dump_json(line) + "\n";
}

Json result_summary(std::span<const TurnRecord> turns, const RunInfo& info) {
    SeriesSet set = collect(turns);
    int64_t output_total = 0;
    for (const int64_t tokens : set.output) output_total += tokens;
    const bool has_output = !set.output.empty();
    const double seconds = static_cast<double>(info.duration_ns) / 1e9;
    const bool has_duration = info.duration_ns > 0;

    Json summary{{"version", info.version}, {"git_sha", nullptr}, {"test_started_at", 0}};
    summary["n_samples_issued"] = turns.size();
    summary["n_samples_completed"] = turns.size();
    summary["n_samples_failed"] = std::ranges::count_if(turns, [](const TurnRecord& turn) { return !turn.is_ok(); });
    summary["duration_ns"] = has_duration ? Json(info.duration_ns) : Json();
    summary["state"] = info.is_complete ? "complete" : "interrupted";
    summary["complete"] = info.is_complete;
    summary["ttft"] = series_json(std::move(set.ttft), EarlyStopping::yes);
    summary["tpot"] = series_json(std::move(set.tpot), EarlyStopping::yes);
    summary["latency"] = series_json(std::move(set.latency), EarlyStopping::yes);
    summary["output_sequence_lengths"] = series_json(std::move(set.output), EarlyStopping::no);
    summary["input_sequence_lengths"] = series_json(std::move(set.input), EarlyStopping::no);
    summary["legacy_loadgen_window_duration_ns"] = nullptr;
    summary["qps"] = has_duration ? Json(static_cast<double>(turns.size()) / seconds) : Json();
    summary["tps"] = has_duration && has_output ? Json(static_cast<double>(output_total) / seconds) : Json();
    summary["finish_reason_counts"] = finish_counts(turns);
    summary["run_config"] = run_config(info);
    return summary;
}

Json inline_accuracy_entry(const Json& scores, size_t n_samples, const RunInfo& info) {
    return {{"dataset_name", "performance"},  {"extractor", nullptr},
            {"ground_truth_column", nullptr}, {"score", scores["score"]},
            {"unit_samples", n_samples},      {"num_repeats", 1},
            {"total_samples", n_samples},     {"duration_s", static_cast<double>((info.duration_ns + 500000) / 1000000) / 1000.0},
            {"complete", info.is_complete},   {"dataset_type", "performance"}};
}

Json accuracy_results(const Json& entries) {
    double sum = 0;
    int64_t n = 0;
    for (const Json& entry : entries) {
        if (entry["dataset_type"] != "accuracy" || !entry["score"].is_number()) continue;
        sum += entry["score"].get<double>();
        ++n;
    }
    Json results = Json::object();
    if (n > 0) results["average_accuracy"] = sum / static_cast<double>(n);
    results["accuracy_scores"] = entries;
    return results;
}

std::string events_jsonl(std::span<const TurnRecord> turns) {
    std::string lines;
    const auto add = [&](const Json& line) { lines += dump_json(line) + "\n"; };
    if (turns.empty()) return lines;
    const int64_t begin = turns.front().issued_ns;
    const int64_t end = turns.back().complete_ns;
    add(event("session.started", begin, nullptr, nullptr));
    add(event("session.start_performance_tracking", begin, nullptr, nullptr));
    for (const TurnRecord& turn : turns) {
        add(event("sample.issued", turn.issued_ns, &turn, nullptr));
        if (turn.reply.first_chunk_ns) add(event("sample.recv_first", *turn.reply.first_chunk_ns, &turn, nullptr));
        if (!turn.is_ok())
            add(event("error.generic", turn.complete_ns, &turn, Json::array({"ErrorData", turn.fault, turn.detail})));
        Json complete = event("sample.complete", turn.complete_ns, &turn, turn.is_ok() ? output_data(turn.reply) : Json());
        if (!turn.reply.finish_reason.empty()) complete["finish_reason"] = turn.reply.finish_reason;
        add(complete);
    }
    for (const char* type : {"session.stop_performance_tracking", "session.stop_loadgen", "session.ended"}) {
        add(event(type, end, nullptr, nullptr));
    }
    return lines;
}

Json sample_index_map(std::span<const TurnRecord> turns) {
    Json samples = Json::object();
    for (const TurnRecord& turn : turns) samples[turn.sample_uuid] = turn.dataset_index;
    return {{"performance", std::move(samples)}};
}

Status make_folder(const std::string& path) {
    std::error_code ec;
    std::filesystem::create_directories(path, ec);
    if (ec) return invalid_input(fmt::format("{}: cannot create the folder: {}", path, ec.message()));
    return {};
}

}  // namespace espalier::bench
