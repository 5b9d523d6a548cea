// Holds back the text that may yet turn out to be a stop string, and cuts at the first one found.
//
// The engine ends the job at a stop string, but tokens committed before the match was complete have already left it: a reply
// streamed without this filter would show the beginning of the stop string. The filter sees the reply as the engine matches
// it (special tokens as text), so both find the same place.
#pragma once

#include <string>
#include <vector>

namespace espalier::server {

enum class RunKind {
    text,
    marker,  // one added token of the model, shown
    hidden,  // one control token: matched by stop strings, but never shown
};

struct TextRun {
    std::string text;
    RunKind kind = RunKind::text;
};

class StopFilter {
public:
    explicit StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {}

    // Appends to `out` what can no longer be part of a stop string.
    void push(TextRun run, std::vector<TextRun>& out);
    // The reply ended: appends the rest, up to `kept_bytes` of the whole reply (-1 = all).
    void finish(int64_t kept_bytes, std::vector<TextRun>& out);
    // A stop string was found; everything behind its beginning is dropped.
    bool has_matched() const { return has_matched_; }

private:
    size_t releasable_bytes();
    void release(size_t bytes, std::vector<TextRun>& out);

    std::vector<std::string> stops_;
    std::vector<TextRun> pending_;
    std::string held_;  // the pending runs' text, joined
    int64_t released_bytes_ = 0;
    bool has_matched_ = false;
};

}  // namespace espalier::server
