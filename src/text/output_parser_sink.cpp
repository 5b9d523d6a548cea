#include "text/output_parser_sink.h"

#include "base/check.h"
#include "text/output_parser_symbols.h"

namespace espalier::text {

OutputDelta& OutputSink::delta(OutputDelta::Kind kind) {
    const bool is_call =
        kind == OutputDelta::Kind::call_begin || kind == OutputDelta::Kind::call_arguments || kind == OutputDelta::Kind::call_end;
    const int call_index = is_call ? n_calls() - 1 : -1;
    if (target_->size() == n_older_ || target_->back().kind != kind || target_->back().call_index != call_index) {
        target_->push_back({kind, call_index, {}, {}});
    }
    return target_->back();
}

void OutputSink::content(std::string_view text) {
    append(content_, parsed_.content, bytes_.content, text);
}

void OutputSink::reasoning(std::string_view text) {
    append(reasoning_, parsed_.reasoning, bytes_.reasoning, text);
}

void OutputSink::append(TextChannel& channel, std::string& whole, size_t& n_bytes, std::string_view text) {
    while (!text.empty()) {
        const size_t n_space = skip_space(text, 0);
        if (!channel.is_started && !channel.keeps_leading_space) {
            bytes_.framing += n_space;
        } else {
            channel.held_space += text.substr(0, n_space);
        }
        text.remove_prefix(n_space);
        size_t n_text = 0;
        while (n_text < text.size() && !is_space(text[n_text])) ++n_text;
        if (n_text == 0) break;
        if (!channel.is_started && !whole.empty()) {
            delta(channel.kind).text += '\n';
            whole += '\n';
        }
        release(channel, whole, n_bytes);
        channel.is_started = true;
        delta(channel.kind).text += text.substr(0, n_text);
        whole += text.substr(0, n_text);
        n_bytes += n_text;
        text.remove_prefix(n_text);
    }
}

void OutputSink::release(TextChannel& channel, std::string& whole, size_t& n_bytes) {
    if (channel.held_space.empty()) return;
    delta(channel.kind).text += channel.held_space;
    whole += channel.held_space;
    n_bytes += channel.held_space.size();
    channel.held_space.clear();
}

void OutputSink::end_segment(TextChannel& channel) {
    bytes_.framing += channel.held_space.size();
    channel.held_space.clear();
    channel.is_started = false;
    channel.keeps_leading_space = false;
}

void OutputSink::begin_call(std::string_view name) {
    end_reasoning_segment();
    end_content_segment();
    parsed_.calls.push_back({std::string(name), {}, false});
    delta(OutputDelta::Kind::call_begin).call_name = name;
}

void OutputSink::arguments(std::string_view json) {
    if (json.empty()) return;
    delta(OutputDelta::Kind::call_arguments).text += json;
    parsed_.calls.back().arguments += json;
}

void OutputSink::end_call() {
    CHECK(!parsed_.calls.empty(), "a call ends that never began");
    delta(OutputDelta::Kind::call_end);
    parsed_.calls.back().is_complete = true;
}

void OutputSink::repair(const char* kind, size_t n_bytes) {
    ++repairs_[kind];
    bytes_.repaired += n_bytes;
}

void OutputSink::finish(StopCause cause) {
    end_reasoning_segment();
    if (content_.is_started && parsed_.calls.empty()) release(content_, parsed_.content, bytes_.content);
    end_content_segment();
    if (cause == StopCause::length) {
        parsed_.finish_reason = "length";
    } else {
        parsed_.finish_reason = parsed_.calls.empty() ? "stop" : "tool_calls";
    }
}

}  // namespace espalier::text
