// Where a library part says what happened. Nothing below main prints: it is handed a Log and writes to that.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace espalier {

enum class LogLevel { error, warning, info, debug };

// "error", "warning", "info", "debug".
std::string_view to_string(LogLevel level);
// The reverse. Errors: invalid_input, naming the levels there are.
Result<LogLevel> parse_log_level(std::string_view name);

// A value that refers to a sink; copies refer to the same one. Safe from any thread. A message longer than one line is written as
// several, each with time and level.
class Log {
public:
    using Sink = std::function<void(LogLevel level, std::string_view line)>;

    // Drops everything: the default for tests and for callers without a sink.
    Log() = default;
    // "2026-01-31 12:00:00.123 warning: message" on stderr; what is less important than `level` is dropped.
    static Log to_stderr(LogLevel level);
    // Any other place. `sink` is called from the thread that logs, one call at a time.
    static Log to_sink(LogLevel level, Sink sink);

    void error(std::string_view message) const { write(LogLevel::error, message); }
    void warning(std::string_view message) const { write(LogLevel::warning, message); }
    void info(std::string_view message) const { write(LogLevel::info, message); }
    void debug(std::string_view message) const { write(LogLevel::debug, message); }
    // True if a message of this level would be written: for messages that cost something to build.
    bool is_enabled(LogLevel level) const;

private:
    struct Target;
    explicit Log(std::shared_ptr<const Target> target) : target_(std::move(target)) {}
    void write(LogLevel level, std::string_view message) const;
    std::shared_ptr<const Target> target_;
};

// One line of progress that rewrites itself. Shown only on a terminal: in a file or a pipe it would be noise. The line is
// cleared by finish() or the destructor, so what follows starts on a clean line.
class ProgressLine {
public:
    explicit ProgressLine(std::FILE* out = stderr);
    ~ProgressLine() { finish(); }
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    // Replaces what the line shows. Cut at the width of the terminal.
    void update(std::string_view text);
    void finish();

private:
    std::FILE* out_;
    size_t columns_ = 0;  // 0 = not a terminal
    bool is_shown_ = false;
};

}  // namespace espalier
