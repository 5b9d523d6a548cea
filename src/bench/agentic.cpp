// The client measures as the official harness does (golden rules: mlcommons/endpoints, commit ea332753): a turn's clock starts
// before the request is written, the first token is the first non-empty content or reasoning or the first tool-call delta, one
// request is in flight at a time. Everything that costs time and is not the server's (rendering, counting, writing files) happens
// between turns, never while a reply streams.
#include "bench/agentic.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <memory>

#include "base/mapped_file.h"
#include "bench/chat_client.h"
#include "bench/dataset.h"
#include "bench/iou.h"
#include "bench/machine.h"
#include "bench/reply.h"
#include "bench/result_files.h"
#include "bench/scores.h"
#include "bench/token_counter.h"

namespace espalier::bench {
namespace {

constexpr double kEndpointTimeoutS = 60;
constexpr int kConnectFailuresMax = 3;

Result<int64_t> parse_index(std::string_view text, std::string_view whole) {
    int64_t value = 0;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || ec != std::errc() || end != text.data() + text.size() || value < 0) {
        return invalid_input(fmt::format("'{}' in '{}' is not a number; expected a form such as 0,3-5", text, whole));
    }
    return value;
}

std::string sample_uuid(uint64_t seed, uint64_t index) {
    const auto mix = [](uint64_t x) {  // splitmix64
        x += 0x9E3779B97F4A7C15u;
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
        x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
        return x ^ (x >> 31);
    };
    return fmt::format("{:016x}{:016x}", mix(seed ^ index), mix(mix(seed) + index));
}

// What the measure of progress counts: bytes of the request row and of the recorded reply, a stand-in for their tokens.
size_t row_weight(const DatasetRow& row) {
    return dump_json(row.fields).size();
}

class Runner {
public:
    Runner(const AgenticOptions& options, Dataset dataset, ServerAddress address)
        : options_(&options),
          dataset_(std::move(dataset)),
          client_(std::move(address), options.api_key, options.turn_timeout_s) {}

    Result<AgenticReport> run();

private:
    Status prepare();
    Status open_files();
    bool is_selected(size_t conversation) const;
    void count_work();
    Status replay(size_t index);
    Status run_turn(const Conversation& conversation, const History& history, size_t row,
                    std::vector<text::TokenId>& previous_ids);
    Result<std::string> request_body(const Conversation& conversation, const History& history, size_t row);
    void exchange(TurnRecord& turn, std::string body);
    void count_tokens(TurnRecord& turn);
    Status finish_turn(TurnRecord turn, const Conversation& conversation, size_t row);
    void report_progress();
    Result<AgenticReport> finish();
    void read_server_memory(AgenticReport& report) const;
    AgenticReport summarize(const Json& scores) const;

    const AgenticOptions* options_;
    Dataset dataset_;
    ChatClient client_;
    std::unique_ptr<TokenCounter> counter_;
    bool is_local_counter_ = false;
    std::string model_;
    std::ofstream turns_csv_;
    std::ofstream replies_;
    std::vector<TurnRecord> turns_;
    std::vector<ExpectedTurn> expected_;
    size_t n_requests_seen_ = 0;  // of the whole file, for dataset indices
    size_t n_turns_planned_ = 0;
    double weight_planned_ = 0;
    double weight_done_ = 0;
    double iou_sum_ = 0;
    int64_t n_scored_ = 0;
    int n_connect_failures_ = 0;
    bool is_stopped_ = false;  // the server is gone
    bool ends_conversation_ = false;
    uint64_t seed_ = 0;
};

bool Runner::is_selected(size_t conversation) const {
    const auto& chosen = options_->conversations;
    return chosen.empty() || std::ranges::find(chosen, static_cast<int64_t>(conversation)) != chosen.end();
}

Status Runner::prepare() {
    for (const int64_t index : options_->conversations) {
        if (index >= static_cast<int64_t>(dataset_.conversations.size())) {
            return invalid_input(fmt::format("--conversations: {} is too large, '{}' holds {} conversations (0 to {})", index,
                                             options_->dataset_path, dataset_.conversations.size(),
                                             dataset_.conversations.size() - 1));
        }
    }
    count_work();
    if (n_turns_planned_ == 0) return invalid_input("no request lies in the chosen conversations and turns");
    if (!options_->tokenizer_path.empty()) {
        TRY_ASSIGN(counter_, local_token_counter(options_->tokenizer_path, options_->chat_template_path));
        is_local_counter_ = true;
    } else {
        counter_ = server_token_counter(client_.http(), options_->api_key, kEndpointTimeoutS);
    }
    if (options_->reply_length == ReplyLength::recorded && counter_ == nullptr) {
        return invalid_input(
            "--replay-lengths needs token counts: give --tokenizer and --chat-template, or a server with "
            "/apply-template and /tokenize");
    }
    model_ = options_->model.empty() ? client_.first_model() : options_->model;
    seed_ = static_cast<uint64_t>(monotonic_ns());
    return open_files();
}

void Runner::count_work() {
    for (size_t i = 0; i < dataset_.conversations.size(); ++i) {
        if (!is_selected(i)) continue;
        const auto& rows = dataset_.conversations[i].rows;
        for (size_t row = 0; row < rows.size(); ++row) {
            const bool is_in_range = rows[row].turn >= options_->turns.first && rows[row].turn <= options_->turns.last;
            if (!rows[row].is_request() || !is_in_range) continue;
            ++n_turns_planned_;
            weight_planned_ +=
                static_cast<double>(row_weight(rows[row]) + (row + 1 < rows.size() ? row_weight(rows[row + 1]) : 0));
        }
    }
}

Status Runner::open_files() {
    TRY(make_folder(options_->out_dir + "/performance"));
    TRY(make_folder(options_->out_dir + "/accuracy"));
    turns_csv_.open(options_->out_dir + "/turns.csv", std::ios::trunc);
    replies_.open(options_->out_dir + "/replies.jsonl", std::ios::trunc);
    turns_csv_ << turns_csv_header() << std::flush;
    if (!turns_csv_ || !replies_)
        return invalid_input(fmt::format("{}: cannot write turns.csv and replies.jsonl", options_->out_dir));
    return {};
}

Result<AgenticReport> Runner::run() {
    TRY(prepare());
    for (size_t i = 0; i < dataset_.conversations.size() && !is_stopped_; ++i) TRY(replay(i));
    return finish();
}

Status Runner::replay(size_t index) {
    const Conversation& conversation = dataset_.conversations[index];
    if (!is_selected(index)) {
        n_requests_seen_ += std::ranges::count_if(conversation.rows, &DatasetRow::is_request);
        return {};
    }
    const size_t first_expected = expected_.size();
    append_expected(conversation, expected_);
    std::erase_if(expected_, [&](const ExpectedTurn& turn) {
        const bool is_mine = turn.conversation == conversation.id;
        return is_mine && (turn.client_turn < options_->turns.first || turn.client_turn > options_->turns.last);
    });
    CHECK(expected_.size() >= first_expected, "only turns of this conversation are removed");

    History history(conversation);
    std::vector<text::TokenId> previous_ids;
    ends_conversation_ = false;
    for (size_t row = 0; row < conversation.rows.size(); ++row) {
        const DatasetRow& entry = conversation.rows[row];
        history.append(entry);
        if (!entry.is_request()) continue;
        const bool is_in_range = entry.turn >= options_->turns.first && entry.turn <= options_->turns.last;
        if (is_in_range && !ends_conversation_ && !is_stopped_) TRY(run_turn(conversation, history, row, previous_ids));
        ++n_requests_seen_;
    }
    return {};
}

Result<std::string> Runner::request_body(const Conversation& conversation, const History& history, size_t row) {
    std::string length = fmt::format("\"max_completion_tokens\":{}", options_->max_completion_tokens);
    std::string tail;
    if (!conversation.tools.is_null()) tail = ",\"tools\":" + dump_json(conversation.tools);
    if (options_->reply_length == ReplyLength::recorded) {
        int64_t n_tokens = options_->max_completion_tokens;
        if (row + 1 < conversation.rows.size()) {
            TRY_ASSIGN(n_tokens, reply_tokens(*counter_, assistant_message(conversation.rows[row + 1])));
        }
        length = fmt::format("\"max_tokens\":{}", std::max<int64_t>(1, n_tokens));
        tail += ",\"ignore_eos\":true";
    }
    return fmt::format("{{\"model\":{},\"messages\":{},\"temperature\":0.0,{},\"stream\":true,\"seed\":42{}}}",
                       dump_json(Json(model_)), history.messages_json(), length, tail);
}

Status Runner::run_turn(const Conversation& conversation, const History& history, size_t row,
                        std::vector<text::TokenId>& previous_ids) {
    TurnRecord turn;
    turn.sample_uuid = sample_uuid(seed_, n_requests_seen_);
    turn.conversation = conversation.id;
    turn.turn = conversation.rows[row].turn;
    turn.dataset_index = n_requests_seen_;
    if (counter_ != nullptr) {
        Result<std::vector<text::TokenId>> ids = counter_->prompt_ids(conversation, history);
        if (!ids && is_local_counter_) return ids.error();
        if (ids) {
            turn.prompt_tokens = static_cast<int64_t>(ids->size());
            turn.new_tokens = *turn.prompt_tokens - common_prefix(*ids, previous_ids);
            previous_ids = *std::move(ids);
        }
    }
    TRY_ASSIGN(std::string body, request_body(conversation, history, row));
    exchange(turn, std::move(body));
    if (turn.fault == "connect" && turns_.empty()) {
        return invalid_input(fmt::format("{}: cannot connect ({}); is the server running?", options_->url, turn.detail));
    }
    count_tokens(turn);
    return finish_turn(std::move(turn), conversation, row);
}

void Runner::exchange(TurnRecord& turn, std::string body) {
    ChatOutcome outcome = client_.complete(std::move(body), turn.conversation);
    turn.fault = std::move(outcome.fault);
    turn.detail = std::move(outcome.detail);
    turn.was_reconnected = outcome.was_reconnected;
    turn.reply = std::move(outcome.reply);
    turn.issued_ns = outcome.issued_ns;
    turn.complete_ns = outcome.complete_ns;
}

void Runner::count_tokens(TurnRecord& turn) {
    const ServerCounts& counts = turn.reply.counts;
    if (counts.prompt_tokens) turn.prompt_tokens = counts.prompt_tokens;
    turn.output_tokens = counts.output_tokens;
    if (!turn.is_ok() || turn.reply.first_chunk == FirstChunk::none) return;
    const Json message = assistant_reply(turn.reply);
    if (!turn.output_tokens && counter_ != nullptr) {
        if (const auto n = reply_tokens(*counter_, message)) turn.output_tokens = *n;
    }
    if (is_local_counter_) {
        StreamedReply& reply = turn.reply;
        Json rest = message;
        if (reply.first_chunk == FirstChunk::content) rest["content"] = reply.content.substr(reply.first_chunk_bytes);
        if (reply.first_chunk == FirstChunk::reasoning)
            rest["reasoning_content"] = reply.reasoning.substr(reply.first_chunk_bytes);
        if (rest.value("reasoning_content", "x").empty()) rest.erase("reasoning_content");
        if (const auto n = reply_tokens(*counter_, rest)) turn.tokens_after_first = *n;
    } else if (turn.output_tokens) {
        // The harness counts a call as a whole even if its first delta was the first chunk.
        turn.tokens_after_first = *turn.output_tokens - (turn.reply.first_chunk == FirstChunk::tool_call ? 0 : 1);
    }
}

Status Runner::finish_turn(TurnRecord turn, const Conversation& conversation, size_t row) {
    if (row + 1 < conversation.rows.size()) {
        const auto& fields = conversation.rows[row + 1].fields;
        const auto calls = fields.find("tool_calls");
        const std::vector<std::string> recorded = bash_actions(calls == fields.end() ? Json() : *calls);
        if (!recorded.empty()) {
            turn.iou = turn.is_ok() ? multiset_iou(recorded, bash_actions(turn.reply.tool_calls())) : 0.0;
            iou_sum_ += *turn.iou;
            ++n_scored_;
        }
        weight_done_ += static_cast<double>(row_weight(conversation.rows[row + 1]));
    }
    weight_done_ += static_cast<double>(row_weight(conversation.rows[row]));
    turns_csv_ << turns_csv_row(turn) << std::flush;
    replies_ << replies_line(turn) << std::flush;
    if (!turns_csv_ || !replies_) return exhausted(fmt::format("{}: cannot write, is the disk full?", options_->out_dir));
    ends_conversation_ = turn.fault == "timeout";
    n_connect_failures_ = turn.fault == "connect" ? n_connect_failures_ + 1 : 0;
    is_stopped_ = n_connect_failures_ >= kConnectFailuresMax;
    turns_.push_back(std::move(turn));
    report_progress();
    return {};
}

void Runner::report_progress() {
    if (!options_->on_progress) return;
    const TurnRecord& last = turns_.back();
    const double elapsed_s = static_cast<double>(last.complete_ns - turns_.front().issued_ns) / 1e9;
    const double left_s = weight_done_ > 0 ? elapsed_s * (weight_planned_ - weight_done_) / weight_done_ : 0;
    const std::string iou = n_scored_ > 0 ? fmt::format("{:.4f}", iou_sum_ / static_cast<double>(n_scored_)) : "-";
    const std::string ttft = last.ttft_ns() ? fmt::format("{:.0f} ms", static_cast<double>(*last.ttft_ns()) / 1e6) : "-";
    options_->on_progress(fmt::format("turn {}/{}  {} turn {}{}  ttft {}  IoU {}  {:.0f} s, about {:.0f} s left", turns_.size(),
                                      n_turns_planned_, last.conversation, last.turn,
                                      last.is_ok() ? "" : " FAILED: " + last.fault, ttft, iou, elapsed_s, std::max(0.0, left_s)));
}

Result<AgenticReport> Runner::finish() {
    if (options_->on_progress) options_->on_progress("");
    std::vector<ObservedTurn> observed;
    for (const TurnRecord& turn : turns_) {
        observed.push_back({turn.conversation, turn.turn, turn.is_ok() ? std::optional(turn.reply.tool_calls()) : std::nullopt});
    }
    const Json scores = score_run(expected_, observed);
    const RunInfo info{options_->version, turns_.back().complete_ns - turns_.front().issued_ns, !is_stopped_, 1};
    const std::string& dir = options_->out_dir;
    TRY(write_file_atomic(dir + "/scores.json", dump_json(scores, 2)));
    TRY(write_file_atomic(dir + "/performance/result_summary.json", dump_json(result_summary(turns_, info), 2)));
    const Json entries = Json::array({inline_accuracy_entry(scores, turns_.size(), info)});
    TRY(write_file_atomic(dir + "/accuracy/accuracy_results.json", dump_json(accuracy_results(entries), 2)));
    TRY(write_file_atomic(dir + "/events.jsonl", events_jsonl(turns_)));
    TRY(write_file_atomic(dir + "/sample_idx_map.json", dump_json(sample_index_map(turns_), 2)));
    AgenticReport report = summarize(scores);
    read_server_memory(report);
    return report;
}

void Runner::read_server_memory(AgenticReport& report) const {
    if (!is_loopback(client_.http().address().host)) return;
    const std::optional<int> pid = listening_pid(client_.http().address().port);
    const auto memory = pid ? process_memory(*pid) : std::nullopt;
    if (!memory) return;
    report.server_rss_bytes = memory->rss_bytes;
    report.server_rss_peak_bytes = memory->rss_peak_bytes;
}

void add(std::optional<int64_t>& sum, const std::optional<int64_t>& value) {
    if (value) sum = sum.value_or(0) + *value;
}

// The harness' median: the lower of two middle values.
std::optional<double> median_ms(std::vector<double> values_ns) {
    if (values_ns.empty()) return std::nullopt;
    const auto middle = values_ns.begin() + static_cast<ptrdiff_t>((values_ns.size() - 1) / 2);
    std::ranges::nth_element(values_ns, middle);
    return *middle / 1e6;
}

AgenticReport Runner::summarize(const Json& scores) const {
    AgenticReport report;
    report.n_turns = static_cast<int64_t>(turns_.size());
    report.out_dir = options_->out_dir;
    report.token_source = counter_ != nullptr ? counter_->source() : "";
    std::vector<std::string> conversations;
    std::vector<double> ttft_ns, tpot_ns;
    std::optional<int64_t> rounds, round_tokens, cached_of, decoded;
    double decode_ns = 0;
    for (const TurnRecord& turn : turns_) {
        const ServerCounts& counts = turn.reply.counts;
        if (conversations.empty() || conversations.back() != turn.conversation) conversations.push_back(turn.conversation);
        report.n_malformed_frames += turn.reply.n_malformed;
        report.n_reconnects += turn.was_reconnected ? 1 : 0;
        add(report.prompt_tokens, turn.prompt_tokens);
        add(report.new_tokens, turn.new_tokens);
        if (!turn.is_ok()) {
            if (report.faults.empty()) report.first_fault = turn.fault + ": " + turn.detail;
            ++report.faults[turn.fault];
            continue;
        }
        if (turn.ttft_ns()) ttft_ns.push_back(static_cast<double>(*turn.ttft_ns()));
        if (const auto tpot = turn.tpot_ns()) {
            tpot_ns.push_back(*tpot);
            add(decoded, turn.tokens_after_first);
            decode_ns += static_cast<double>(turn.complete_ns - *turn.reply.first_chunk_ns);
        }
        add(report.output_tokens, turn.output_tokens);
        add(report.cached_tokens, counts.cached_tokens);
        if (counts.cached_tokens) add(cached_of, turn.prompt_tokens);
        add(report.drafted, counts.drafted);
        add(report.accepted, counts.accepted);
        add(rounds, counts.rounds);
        if (counts.rounds) add(round_tokens, turn.output_tokens);
    }
    report.n_conversations = static_cast<int64_t>(conversations.size());
    report.duration_s = static_cast<double>(turns_.back().complete_ns - turns_.front().issued_ns) / 1e9;
    if (scores["score"].is_number()) report.iou = scores["score"].get<double>();
    report.is_valid = scores["turns"]["missing"] == 0 && !is_stopped_ && report.n_turns == static_cast<int64_t>(n_turns_planned_);
    report.ttft_ms_median = median_ms(ttft_ns);
    if (!ttft_ns.empty()) report.ttft_ms_max = std::ranges::max(ttft_ns) / 1e6;
    report.tpot_ms_median = median_ms(tpot_ns);
    if (report.output_tokens && report.duration_s > 0) {
        report.tokens_per_s = static_cast<double>(*report.output_tokens) / report.duration_s;
    }
    if (decoded && decode_ns > 0) report.decode_tokens_per_s = static_cast<double>(*decoded) / (decode_ns / 1e9);
    if (report.cached_tokens && cached_of.value_or(0) > 0) {
        report.cached_share = static_cast<double>(*report.cached_tokens) / static_cast<double>(*cached_of);
    }
    if (rounds.value_or(0) > 0 && round_tokens) {
        report.tokens_per_round = static_cast<double>(*round_tokens) / static_cast<double>(*rounds);
    }
    return report;
}

template <class T>
Json json_of(const std::optional<T>& value) {
    return value ? Json(*value) : Json();
}

}  // namespace

Result<std::vector<int64_t>> parse_index_list(std::string_view text) {
    std::vector<int64_t> indices;
    for (std::string_view rest = text; !rest.empty() || indices.empty();) {
        const size_t comma = rest.find(',');
        const std::string_view part = rest.substr(0, comma);
        const bool is_last = comma == std::string_view::npos;
        rest = is_last ? std::string_view() : rest.substr(comma + 1);
        if (!is_last && rest.empty()) return invalid_input(fmt::format("'{}' ends in a comma", text));
        const size_t dash = part.find('-');
        TRY_ASSIGN(const int64_t first, parse_index(part.substr(0, dash), text));
        int64_t last = first;
        if (dash != std::string_view::npos) {
            TRY_ASSIGN(last, parse_index(part.substr(dash + 1), text));
        }
        if (last < first || last - first > 1'000'000)
            return invalid_input(fmt::format("'{}' in '{}' is not a range", part, text));
        for (int64_t index = first; index <= last; ++index) indices.push_back(index);
    }
    std::ranges::sort(indices);
    indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
    return indices;
}

Result<TurnRange> parse_turn_range(std::string_view text) {
    TurnRange range;
    const size_t dash = text.find('-');
    TRY_ASSIGN(range.first, parse_index(text.substr(0, dash), text));
    if (dash == std::string_view::npos) {
        range.last = range.first;
    } else if (dash + 1 < text.size()) {
        TRY_ASSIGN(range.last, parse_index(text.substr(dash + 1), text));
    }
    if (range.last < range.first) return invalid_input(fmt::format("turns '{}': the last is before the first", text));
    return range;
}

Json AgenticReport::to_json() const {
    Json json{{"turns", n_turns}, {"conversations", n_conversations}, {"iou", json_of(iou)}, {"valid", is_valid}};
    json["ttft_ms"] = {{"median", json_of(ttft_ms_median)}, {"max", json_of(ttft_ms_max)}};
    json["tpot_ms"] = {{"median", json_of(tpot_ms_median)}};
    json["tokens_per_s"] = json_of(tokens_per_s);
    json["decode_tokens_per_s"] = json_of(decode_tokens_per_s);
    json["cached_share"] = json_of(cached_share);
    json["prompt_tokens"] = json_of(prompt_tokens);
    json["cached_tokens"] = json_of(cached_tokens);
    json["new_tokens"] = json_of(new_tokens);
    json["output_tokens"] = json_of(output_tokens);
    json["drafted"] = json_of(drafted);
    json["accepted"] = json_of(accepted);
    json["tokens_per_round"] = json_of(tokens_per_round);
    json["server_rss_bytes"] = json_of(server_rss_bytes);
    json["server_rss_peak_bytes"] = json_of(server_rss_peak_bytes);
    json["duration_s"] = duration_s;
    json["malformed_frames"] = n_malformed_frames;
    json["reconnects"] = n_reconnects;
    json["faults"] = faults;
    json["first_fault"] = first_fault.empty() ? Json() : Json(first_fault);
    json["token_source"] = token_source.empty() ? Json() : Json(token_source);
    json["out_dir"] = out_dir;
    return json;
}

std::string AgenticReport::to_table() const {
    std::string table;
    const auto row = [&](std::string_view name, const std::string& value) { table += fmt::format("  {:<22}{}\n", name, value); };
    const auto number = [](const std::optional<double>& value, std::string_view unit, int digits) {
        return value ? fmt::format("{:.{}f}{}", *value, digits, unit) : std::string("not known");
    };
    const auto count = [](const std::optional<int64_t>& value) {
        return value ? fmt::format("{}", *value) : std::string("not known");
    };
    row("turns",
        fmt::format("{} in {} conversations, {:.1f} s{}", n_turns, n_conversations, duration_s, is_valid ? "" : "  NOT VALID"));
    row("IoU", number(iou, "", 4));
    row("TTFT median", number(ttft_ms_median, " ms", 1));
    row("TTFT max", number(ttft_ms_max, " ms", 1));
    row("decode", number(decode_tokens_per_s, " tok/s", 2));
    row("overall", number(tokens_per_s, " tok/s", 2));
    row("cached share", cached_share ? fmt::format("{:.2f} %", *cached_share * 100) : "not known");
    row("prompt tokens", fmt::format("{} ({} new)", count(prompt_tokens), count(new_tokens)));
    row("output tokens", count(output_tokens));
    if (drafted.value_or(0) > 0) {
        row("drafts accepted",
            fmt::format("{} of {}, {} tokens a round", count(accepted), count(drafted), number(tokens_per_round, "", 2)));
    }
    if (server_rss_bytes) {
        row("server memory", fmt::format("{:.0f} MB, peak {:.0f} MB", static_cast<double>(*server_rss_bytes) / 1e6,
                                         static_cast<double>(server_rss_peak_bytes.value_or(0)) / 1e6));
    }
    if (n_malformed_frames > 0) row("malformed frames", std::to_string(n_malformed_frames));
    if (n_reconnects > 0) row("reconnects", std::to_string(n_reconnects));
    for (const auto& [kind, n] : faults) row("failed: " + kind, std::to_string(n));
    if (!first_fault.empty()) row("first failure", first_fault);
    row("files", out_dir);
    return table;
}

std::function<void(std::string_view)> terminal_progress() {
    if (isatty(STDERR_FILENO) == 0) return {};
    return [](std::string_view line) { fmt::print(stderr, "\r\x1b[K{}", line); };
}

Result<AgenticReport> run_agentic(const AgenticOptions& options) {
    if (options.tokenizer_path.empty() != options.chat_template_path.empty()) {
        return invalid_input("--tokenizer and --chat-template belong together: give both or neither");
    }
    if (options.out_dir.empty()) return invalid_input("no folder for the results was given");
    TRY_ASSIGN(ServerAddress address, parse_server_url(options.url));
    TRY_ASSIGN(Dataset dataset, load_dataset(options.dataset_path));
    return Runner(options, std::move(dataset), std::move(address)).run();
}

}  // namespace espalier::bench
