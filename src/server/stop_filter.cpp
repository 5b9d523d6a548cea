#include "server/stop_filter.h"

#include <algorithm>
#include <string_view>

namespace espalier::server {

void StopFilter::push(TextRun run, std::vector<TextRun>& out) {
    if (has_matched_ || run.text.empty()) return;
    held_ += run.text;
    pending_.push_back(std::move(run));
    release(releasable_bytes(), out);
    if (has_matched_) {
        pending_.clear();
        held_.clear();
    }
}

void StopFilter::finish(int64_t kept_bytes, std::vector<TextRun>& out) {
    size_t bytes = held_.size();
    if (kept_bytes >= 0)
        bytes = static_cast<size_t>(std::clamp<int64_t>(kept_bytes - released_bytes_, 0, static_cast<int64_t>(bytes)));
    release(bytes, out);
    pending_.clear();
    held_.clear();
}

// Everything before the earliest place where a stop string begins or might begin.
size_t StopFilter::releasable_bytes() {
    size_t match = std::string::npos;
    for (const std::string& stop : stops_) match = std::min(match, held_.find(stop));
    if (match != std::string::npos) {
        has_matched_ = true;
        return match;
    }
    size_t longest_tail = 0;
    const std::string_view held = held_;
    for (const std::string& stop : stops_) {
        for (size_t n = std::min(stop.size() - 1, held.size()); n > longest_tail; --n) {
            if (held.substr(held.size() - n) == std::string_view(stop).substr(0, n)) longest_tail = n;
        }
    }
    // A marker is released whole, or its meaning would be lost.
    size_t begin = 0;
    for (const TextRun& run : pending_) {
        const size_t end = begin + run.text.size();
        if (end > held.size() - longest_tail) return run.kind == RunKind::text ? held.size() - longest_tail : begin;
        begin = end;
    }
    return begin;
}

void StopFilter::release(size_t bytes, std::vector<TextRun>& out) {
    if (bytes == 0) return;
    released_bytes_ += static_cast<int64_t>(bytes);
    held_.erase(0, bytes);
    size_t n_whole = 0;
    for (; n_whole < pending_.size() && pending_[n_whole].text.size() <= bytes; ++n_whole) {
        bytes -= pending_[n_whole].text.size();
        out.push_back(std::move(pending_[n_whole]));
    }
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(n_whole));
    if (bytes == 0) return;
    TextRun& cut = pending_.front();  // part of a marker is ordinary text
    out.push_back({cut.text.substr(0, bytes), cut.kind == RunKind::hidden ? RunKind::hidden : RunKind::text});
    cut.text.erase(0, bytes);
    if (cut.kind == RunKind::marker) cut.kind = RunKind::text;
}

}  // namespace espalier::server
