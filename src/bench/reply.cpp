#include "bench/reply.h"

#include <chrono>

namespace espalier::bench {
namespace {

const Json* member(const Json& object, std::string_view key) {
    if (!object.is_object()) return nullptr;
    const auto it = object.find(std::string(key));
    return it == object.end() || it->is_null() ? nullptr : &*it;
}

void read_count(const Json& object, std::string_view key, std::optional<int64_t>& out) {
    const Json* value = member(object, key);
    if (value == nullptr || !value->is_number()) return;
    const double number = value->get<double>();
    if (number >= 0 && number < 9e15) out = static_cast<int64_t>(number);
}

void read_ms(const Json& object, std::string_view key, std::optional<double>& out) {
    const Json* value = member(object, key);
    if (value != nullptr && value->is_number()) out = value->get<double>();
}

// `usage` is the standard and is read last, so that it wins where both are sent.
void read_counts(const Json& frame, ServerCounts& counts) {
    if (const Json* timings = member(frame, "timings")) {
        std::optional<int64_t> evaluated;
        read_count(*timings, "cache_n", counts.cached_tokens);
        read_count(*timings, "prompt_n", evaluated);
        read_count(*timings, "predicted_n", counts.output_tokens);
        read_count(*timings, "draft_n", counts.drafted);
        read_count(*timings, "draft_n_accepted", counts.accepted);
        read_count(*timings, "rounds", counts.rounds);
        read_ms(*timings, "prompt_ms", counts.prompt_ms);
        read_ms(*timings, "predicted_ms", counts.predicted_ms);
        if (evaluated) counts.prompt_tokens = *evaluated + counts.cached_tokens.value_or(0);
    }
    if (const Json* usage = member(frame, "usage")) {
        read_count(*usage, "prompt_tokens", counts.prompt_tokens);
        read_count(*usage, "completion_tokens", counts.output_tokens);
        if (const Json* details = member(*usage, "prompt_tokens_details")) {
            read_count(*details, "cached_tokens", counts.cached_tokens);
        }
    }
}

}  // namespace

int64_t monotonic_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void StreamedReply::on_event(std::string_view data, int64_t now_ns) {
    const auto whole =
        data.find('\n') == std::string_view::npos ? Result<Json>(invalid_input("one line")) : parse_json(data, "frame");
    if (whole && whole->is_object()) return on_frame(*whole, now_ns);
    // Some servers leave out the blank line between events; the official client reads each data line by itself anyway.
    while (!data.empty()) {
        const size_t line_end = data.find('\n');
        std::string_view line = data.substr(0, line_end);
        data = line_end == std::string_view::npos ? std::string_view() : data.substr(line_end + 1);
        while (!line.empty() && line.back() == ' ') line.remove_suffix(1);
        if (line.empty()) continue;
        if (line == "[DONE]") {
            is_done = true;
            continue;
        }
        const auto frame = parse_json(line, "frame");
        if (frame && frame->is_object()) on_frame(*frame, now_ns);
        else ++n_malformed;
    }
}

void StreamedReply::on_frame(const Json& frame, int64_t now_ns) {
    if (const Json* error = member(frame, "error")) {
        const Json* message = member(*error, "message");
        server_error = message != nullptr && message->is_string() ? message->get<std::string>() : dump_json(*error);
        return;
    }
    read_counts(frame, counts);
    const Json* choices = member(frame, "choices");
    if (choices == nullptr) return;
    if (!choices->is_array() || (!choices->empty() && !choices->front().is_object())) {
        ++n_malformed;
        return;
    }
    if (choices->empty()) return;
    const Json& choice = choices->front();
    const Json* reason = member(choice, "finish_reason");
    const Json* delta = member(choice, "delta");
    if ((reason != nullptr && !reason->is_string()) || (delta != nullptr && !on_delta(*delta, now_ns))) {
        ++n_malformed;
        return;
    }
    if (reason != nullptr) finish_reason = reason->get<std::string>();
}

bool StreamedReply::on_delta(const Json& delta, int64_t now_ns) {
    if (!delta.is_object()) return false;
    const Json* text = member(delta, "content");
    const Json* thought = member(delta, "reasoning_content");
    if (thought == nullptr) thought = member(delta, "reasoning");
    const Json* calls = member(delta, "tool_calls");
    if ((text != nullptr && !text->is_string()) || (thought != nullptr && !thought->is_string())) return false;
    if (calls != nullptr && !calls->is_array()) return false;
    if (!first_delta_ns) first_delta_ns = now_ns;
    const std::string text_piece = text != nullptr ? text->get<std::string>() : std::string();
    const std::string thought_piece = thought != nullptr ? thought->get<std::string>() : std::string();
    const bool has_calls = calls != nullptr && !calls->empty();
    if (!text_piece.empty()) {
        content += text_piece;
        mark_first(FirstChunk::content, text_piece.size(), now_ns);
    } else if (!thought_piece.empty()) {
        reasoning += thought_piece;
        mark_first(FirstChunk::reasoning, thought_piece.size(), now_ns);
    } else if (has_calls) {
        mark_first(FirstChunk::tool_call, 0, now_ns);
    } else {
        return true;
    }
    ++n_deltas;
    bool is_well_formed = true;
    if (has_calls) {
        for (const Json& fragment : *calls) is_well_formed &= merger_.add(fragment);
    }
    return is_well_formed;
}

void StreamedReply::mark_first(FirstChunk kind, size_t n_bytes, int64_t now_ns) {
    if (first_chunk != FirstChunk::none) return;
    first_chunk = kind;
    first_chunk_bytes = n_bytes;
    first_chunk_ns = now_ns;
}

}  // namespace espalier::bench
