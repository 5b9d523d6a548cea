#include "text/marker_scanner.h"

namespace espalier::text {

MarkerScanner::MarkerScanner(const ToolFormat& format) {
    for (const std::string_view marker : {format.call_open, format.call_close, format.think_open, format.think_close}) {
        if (!marker.empty()) markers_.push_back(marker);
    }
}

void MarkerScanner::push(std::string_view text, std::vector<MarkedRun>& out) {
    std::string joined = std::move(held_);
    held_.clear();
    joined += text;
    const std::string_view rest = joined;
    size_t plain_begin = 0;
    size_t pos = 0;
    const auto emit_plain = [&] {
        if (pos > plain_begin) out.push_back({std::string(rest.substr(plain_begin, pos - plain_begin)), false});
    };
    while (pos < rest.size()) {
        const std::string_view at = rest.substr(pos);
        std::string_view found;
        bool is_prefix = false;
        for (const std::string_view marker : markers_) {
            if (at.substr(0, marker.size()) == marker) found = marker;
            is_prefix = is_prefix || (at.size() < marker.size() && marker.substr(0, at.size()) == at);
        }
        if (!found.empty()) {
            emit_plain();
            out.push_back({std::string(found), true});
            pos += found.size();
            plain_begin = pos;
        } else if (is_prefix) {
            break;
        } else {
            ++pos;
        }
    }
    emit_plain();
    held_ = rest.substr(pos);
}

void MarkerScanner::flush(std::vector<MarkedRun>& out) {
    if (!held_.empty()) out.push_back({std::move(held_), false});
    held_.clear();
}

}  // namespace espalier::text
