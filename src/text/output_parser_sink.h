// What the output parser produced: the deltas of the current push, the whole answer so far, the repairs, and an account of
// where each input byte went. Streamed pieces and the whole answer are written in one place, so they cannot differ.
//
// Text is trimmed as it streams: white space is held until text follows it, leading white space of a segment is dropped, and
// the next segment of content (after a call or a dropped tag) is joined by one line break.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "text/output_parser.h"

namespace espalier::text {

class OutputSink {
public:
    // Deltas are appended to `out` until the next call; those already there stay as they are.
    void set_target(std::vector<OutputDelta>* out) {
        target_ = out;
        n_older_ = out->size();
    }
    // The first segment of content keeps its leading white space (nothing is parsed, so nothing is framing).
    void keep_leading_space() { content_.keeps_leading_space = true; }

    void content(std::string_view text);
    void reasoning(std::string_view text);
    bool has_content_segment() const { return content_.is_started; }
    bool has_reasoning_segment() const { return reasoning_.is_started; }
    // Ends a segment: white space that was held back is framing.
    void end_content_segment() { end_segment(content_); }
    void end_reasoning_segment() { end_segment(reasoning_); }

    void begin_call(std::string_view name);
    // A piece of the call's JSON arguments.
    void arguments(std::string_view json);
    void end_call();
    int n_calls() const { return static_cast<int>(parsed_.calls.size()); }
    bool has_arguments() const { return !parsed_.calls.back().arguments.empty(); }

    // Each repair counts once, its bytes are those that were dropped (0 if something was merely reinterpreted).
    void repair(const char* kind, size_t n_bytes = 0);
    // Input bytes that are structure, and those whose text went into arguments.
    void count_framing(size_t n_bytes) { bytes_.framing += n_bytes; }
    void count_arguments(size_t n_bytes) { bytes_.arguments += n_bytes; }
    void count_dropped(size_t n_bytes) { bytes_.repaired += n_bytes; }
    void count_input(size_t n_bytes) { bytes_.input += n_bytes; }

    void finish(StopCause cause);

    const ParsedOutput& parsed() const { return parsed_; }
    const std::map<std::string, int>& repairs() const { return repairs_; }
    const ByteAccount& bytes() const { return bytes_; }

private:
    struct TextChannel {
        OutputDelta::Kind kind;
        std::string held_space;
        bool is_started = false;  // the current segment has text
        bool keeps_leading_space = false;
    };

    void append(TextChannel& channel, std::string& whole, size_t& n_bytes, std::string_view text);
    void release(TextChannel& channel, std::string& whole, size_t& n_bytes);
    void end_segment(TextChannel& channel);
    OutputDelta& delta(OutputDelta::Kind kind);

    std::vector<OutputDelta>* target_ = nullptr;
    size_t n_older_ = 0;  // deltas of earlier pushes in the target
    TextChannel content_{OutputDelta::Kind::content, {}, false, false};
    TextChannel reasoning_{OutputDelta::Kind::reasoning, {}, false, false};
    ParsedOutput parsed_;
    std::map<std::string, int> repairs_;
    ByteAccount bytes_;
};

}  // namespace espalier::text
