#include "base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/environment.h"

namespace espalier {
namespace {

TEST(Log, DropsWhatIsBelowTheLevel) {
    std::vector<std::string> lines;
    const Log log = Log::to_sink(LogLevel::warning, [&](LogLevel level, std::string_view line) {
        lines.push_back(std::string(to_string(level)) + ": " + std::string(line));
    });
    log.error("a");
    log.warning("b");
    log.info("c");
    log.debug("d");
    EXPECT_EQ(lines, (std::vector<std::string>{"error: a", "warning: b"}));
    EXPECT_TRUE(log.is_enabled(LogLevel::warning));
    EXPECT_FALSE(log.is_enabled(LogLevel::info));
}

TEST(Log, WritesEachLineOfAMessage) {
    std::vector<std::string> lines;
    const Log log = Log::to_sink(LogLevel::info, [&](LogLevel, std::string_view line) { lines.emplace_back(line); });
    log.info("one\ntwo {} %s\n\nfour");
    log.info("");
    EXPECT_EQ(lines, (std::vector<std::string>{"one", "two {} %s", "", "four", ""}));
}

TEST(Log, WithoutASinkIsSilent) {
    const Log log;
    EXPECT_FALSE(log.is_enabled(LogLevel::error));
    log.error("nobody hears this");
}

TEST(Log, CallsTheSinkFromOneThreadAtATime) {
    std::vector<std::string> lines;
    const Log log = Log::to_sink(LogLevel::info, [&](LogLevel, std::string_view line) { lines.emplace_back(line); });
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([log] {
            for (int n = 0; n < 200; ++n) log.info("line");
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(lines.size(), 800u);
}

TEST(Log, StderrLinesCarryTimeAndLevel) {
    testing::internal::CaptureStderr();
    Log::to_stderr(LogLevel::info).warning("disk {} is full");
    Log::to_stderr(LogLevel::info).debug("not this");
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_NE(text.find(" warning: disk {} is full\n"), std::string::npos) << text;
    EXPECT_EQ(text.find("not this"), std::string::npos) << text;
}

TEST(Log, LevelsHaveNames) {
    for (const auto level : {LogLevel::error, LogLevel::warning, LogLevel::info, LogLevel::debug}) {
        EXPECT_EQ(*parse_log_level(to_string(level)), level);
    }
    EXPECT_EQ(parse_log_level("loud").error().message, "log level 'loud' is not known; use error, warning, info or debug");
}

TEST(ProgressLine, IsSilentInAFile) {
    std::FILE* file = std::tmpfile();
    ASSERT_NE(file, nullptr);
    {
        ProgressLine line(file);
        line.update("50 %");
    }
    EXPECT_EQ(std::ftell(file), 0);
    std::fclose(file);
}

TEST(Environment, TellsUnsetFromEmpty) {
    ASSERT_EQ(::setenv("ESPALIER_TEST_VARIABLE", "", 1), 0);
    EXPECT_EQ(environment_variable("ESPALIER_TEST_VARIABLE"), std::optional<std::string>(""));
    ASSERT_EQ(::unsetenv("ESPALIER_TEST_VARIABLE"), 0);
    EXPECT_EQ(environment_variable("ESPALIER_TEST_VARIABLE"), std::nullopt);
}

}  // namespace
}  // namespace espalier
