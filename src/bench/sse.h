// Incremental parser of a text/event-stream body, for bytes that arrive in any split.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace espalier::bench {

// Follows the WHATWG rules for the fields this client needs: lines end at LF, CR LF or CR, a blank line ends an event, "data:"
// lines are joined by LF, comments and other fields are skipped, one byte order mark at the start is dropped.
class SseParser {
public:
    // Called once per event with its data; the view lives only during the call. Events without data are not reported.
    using EventHandler = std::function<void(std::string_view data)>;

    // An event longer than this is dropped and counted: a server cannot make the client grow without limit.
    static constexpr size_t kEventBytesMax = size_t{64} << 20;

    explicit SseParser(EventHandler on_event) : on_event_(std::move(on_event)) {}

    void push(std::string_view bytes);
    // End of the body: an event whose closing blank line is missing is still delivered, as the usual clients do.
    void finish();

    int events_dropped() const { return events_dropped_; }

private:
    void end_line(std::string_view line);
    void end_event();

    EventHandler on_event_;
    std::string line_;  // an unfinished line
    std::string data_;  // the data lines of the unfinished event
    bool has_data_ = false;
    bool after_cr_ = false;  // the last byte was CR: a LF that follows belongs to it
    bool at_start_ = true;
    bool is_oversized_ = false;
    int events_dropped_ = 0;
};

}  // namespace espalier::bench
