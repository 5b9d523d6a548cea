#include "bench/sse.h"

namespace espalier::bench {

void SseParser::push(std::string_view bytes) {
    size_t begin = 0;
    if (after_cr_ && !bytes.empty()) {
        after_cr_ = false;
        if (bytes.front() == '\n') begin = 1;
    }
    while (begin < bytes.size()) {
        const size_t end = bytes.find_first_of("\r\n", begin);
        if (end == std::string_view::npos) {
            if (line_.size() + (bytes.size() - begin) > kEventBytesMax) {
                is_oversized_ = true;
                line_.clear();
            } else {
                line_ += bytes.substr(begin);
            }
            return;
        }
        if (line_.empty()) {
            end_line(bytes.substr(begin, end - begin));
        } else {
            line_ += bytes.substr(begin, end - begin);
            const std::string line = std::move(line_);
            line_.clear();
            end_line(line);
        }
        begin = end + 1;
        if (bytes[end] == '\r') {
            if (begin == bytes.size()) after_cr_ = true;
            else if (bytes[begin] == '\n') ++begin;
        }
    }
}

void SseParser::end_line(std::string_view line) {
    if (at_start_) {
        at_start_ = false;
        if (line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
    }
    if (line.empty()) return end_event();
    if (!line.starts_with("data")) return;
    line.remove_prefix(4);
    if (!line.empty()) {
        if (line.front() != ':') return;  // a field of another name, such as "database"
        line.remove_prefix(1);
        if (line.starts_with(' ')) line.remove_prefix(1);
    }
    if (data_.size() + line.size() > kEventBytesMax) {
        is_oversized_ = true;
        data_.clear();
    }
    if (has_data_) data_ += '\n';
    data_ += line;
    has_data_ = true;
}

void SseParser::end_event() {
    if (is_oversized_) ++events_dropped_;
    else if (has_data_) on_event_(data_);
    is_oversized_ = false;
    has_data_ = false;
    data_.clear();
}

void SseParser::finish() {
    if (!line_.empty()) {
        const std::string line = std::move(line_);
        line_.clear();
        end_line(line);
    }
    end_event();
    after_cr_ = false;
    at_start_ = true;
}

}  // namespace espalier::bench
