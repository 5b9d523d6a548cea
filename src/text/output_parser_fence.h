// Follows lines and Markdown code fences in prose: a call that is shown inside a fence is an example, not a call.
//
// A fence opens at a line whose first non-blank part is three or more backticks or tildes (a backtick later in the line makes it
// inline code instead) and closes at a line with nothing but at least as many of the same. Any indentation is allowed, because
// fences in lists are indented. Rules after CommonMark 0.31, section 4.5.
#pragma once

#include <cstddef>
#include <string_view>

namespace espalier::text {

class FenceTracker {
public:
    void feed(std::string_view text);

    // Nothing on this line yet.
    bool is_line_start() const { return is_line_start_; }
    // Right after a backtick that opens inline code: an odd one on its line.
    bool opens_code() const { return n_line_ticks_ % 2 == 1 && is_last_tick_; }
    // Only blanks on this line yet.
    bool is_line_blank() const { return n_ticks_ == 0 && !has_rest_; }
    // Inside a fence, or on the line that opens one.
    bool in_fence() const { return open_char_ != 0 || is_opening_line(); }

private:
    void feed_char(char c);
    void end_line();
    bool is_opening_line() const { return n_ticks_ >= 3 && !(tick_char_ == '`' && has_tick_later_); }

    char open_char_ = 0;  // of the fence we are in; 0 = none
    int open_ticks_ = 0;
    // The current line.
    bool is_line_start_ = true;
    char tick_char_ = 0;
    int n_ticks_ = 0;
    bool has_rest_ = false;        // something other than blanks after the ticks, or instead of them
    bool is_run_over_ = false;     // the run of ticks has ended
    bool has_tick_later_ = false;  // a backtick after the run
    size_t n_line_ticks_ = 0;      // all backticks
    bool is_last_tick_ = false;    // the last byte is one
};

}  // namespace espalier::text
