#include "base/log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

namespace espalier {
namespace {

constexpr std::array<std::string_view, 4> kLevelNames = {"error", "warning", "info", "debug"};

spdlog::level::level_enum to_spdlog(LogLevel level) {
    switch (level) {
        case LogLevel::error: return spdlog::level::err;
        case LogLevel::warning: return spdlog::level::warn;
        case LogLevel::info: return spdlog::level::info;
        case LogLevel::debug: return spdlog::level::debug;
    }
    return spdlog::level::err;
}

// Columns of the terminal behind `out`; 0 if there is none.
size_t terminal_columns(std::FILE* out) {
    if (::isatty(::fileno(out)) == 0) return 0;
    winsize size{};
    const bool is_known = ::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    return is_known ? size.ws_col : 80;
}

}  // namespace

std::string_view to_string(LogLevel level) {
    return kLevelNames[static_cast<size_t>(level)];
}

Result<LogLevel> parse_log_level(std::string_view name) {
    for (size_t i = 0; i < kLevelNames.size(); ++i) {
        if (kLevelNames[i] == name) return static_cast<LogLevel>(i);
    }
    return invalid_input(fmt::format("log level '{}' is not known; use error, warning, info or debug", name));
}

struct Log::Target {
    LogLevel level = LogLevel::error;
    mutable std::mutex mutex;
    Sink sink;
    // spdlog's logger is thread safe, its interface is not const.
    mutable std::unique_ptr<spdlog::logger> logger;
};

Log Log::to_stderr(LogLevel level) {
    auto target = std::make_shared<Target>();
    target->level = level;
    target->logger = std::make_unique<spdlog::logger>("espalier", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    target->logger->set_level(to_spdlog(level));
    target->logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %l: %v");
    target->logger->flush_on(spdlog::level::debug);
    return Log(std::move(target));
}

Log Log::to_sink(LogLevel level, Sink sink) {
    auto target = std::make_shared<Target>();
    target->level = level;
    target->sink = std::move(sink);
    return Log(std::move(target));
}

bool Log::is_enabled(LogLevel level) const {
    return target_ != nullptr && level <= target_->level;
}

void Log::write(LogLevel level, std::string_view message) const {
    if (!is_enabled(level)) return;
    for (size_t begin = 0; begin <= message.size();) {
        const size_t end = std::min(message.find('\n', begin), message.size());
        const std::string_view line = message.substr(begin, end - begin);
        if (target_->logger != nullptr) {
            target_->logger->log(to_spdlog(level), "{}", line);
        } else {
            std::lock_guard lock(target_->mutex);
            target_->sink(level, line);
        }
        begin = end + 1;
    }
}

ProgressLine::ProgressLine(std::FILE* out) : out_(out), columns_(terminal_columns(out)) {}

void ProgressLine::update(std::string_view text) {
    if (columns_ == 0) return;
    // Back to the first column, clear to the end, write. One column stays free: a full line would wrap.
    fmt::print(out_, "\r\x1b[K{}", text.substr(0, columns_ - 1));
    std::fflush(out_);
    is_shown_ = true;
}

void ProgressLine::finish() {
    if (!is_shown_) return;
    fmt::print(out_, "\r\x1b[K");
    std::fflush(out_);
    is_shown_ = false;
}

}  // namespace espalier
