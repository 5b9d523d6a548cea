#include "text/output_parser_fence.h"

namespace espalier::text {

void FenceTracker::feed(std::string_view text) {
    for (const char c : text) feed_char(c);
}

void FenceTracker::feed_char(char c) {
    if (c == '\n') {
        end_line();
        return;
    }
    is_line_start_ = false;
    is_last_tick_ = c == '`';
    n_line_ticks_ += is_last_tick_;
    const bool is_blank = c == ' ' || c == '\t' || c == '\r';
    if ((c == '`' || c == '~') && !has_rest_ && !is_run_over_ && (n_ticks_ == 0 || c == tick_char_)) {
        tick_char_ = c;
        ++n_ticks_;
        return;
    }
    if (n_ticks_ > 0) is_run_over_ = true;
    if (is_blank) return;
    has_rest_ = true;
    has_tick_later_ = has_tick_later_ || c == '`';
}

void FenceTracker::end_line() {
    if (open_char_ == 0) {
        if (is_opening_line()) {
            open_char_ = tick_char_;
            open_ticks_ = n_ticks_;
        }
    } else if (n_ticks_ >= open_ticks_ && tick_char_ == open_char_ && !has_rest_) {
        open_char_ = 0;
    }
    is_line_start_ = true;
    tick_char_ = 0;
    n_ticks_ = 0;
    has_rest_ = false;
    is_run_over_ = false;
    has_tick_later_ = false;
    n_line_ticks_ = 0;
    is_last_tick_ = false;
}

}  // namespace espalier::text
