#include "decode/stop_matcher.h"

#include <algorithm>

namespace espalier::decode {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
    std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
    for (const std::string& stop : stops_) longest_ = std::max(longest_, stop.size());
}

int64_t StopMatcher::push(std::string_view piece) {
    if (stops_.empty()) return -1;
    tail_ += piece;
    size_t first = std::string::npos;
    for (const std::string& stop : stops_) first = std::min(first, tail_.find(stop));
    if (first != std::string::npos) return tail_begin_ + static_cast<int64_t>(first);
    if (tail_.size() >= longest_) {
        const size_t drop = tail_.size() - (longest_ - 1);
        tail_.erase(0, drop);
        tail_begin_ += static_cast<int64_t>(drop);
    }
    return -1;
}

}  // namespace espalier::decode
