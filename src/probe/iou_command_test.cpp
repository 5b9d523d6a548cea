#include "probe/iou_command.h"

#include <gtest/gtest.h>

#include <sstream>

namespace espalier::probe {
namespace {

std::string run(const std::string& input, std::string* error = nullptr) {
    std::istringstream in(input);
    std::ostringstream out;
    const Status status = run_iou(in, out);
    if (error != nullptr) *error = status ? "" : status.error().message;
    else EXPECT_TRUE(status.has_value()) << status.error().message;
    return out.str();
}

const std::string kLs = R"([{"function":{"name":"bash","arguments":"{\"command\": \"ls\"}"}}])";

TEST(IouCommand, OneLineEach) {
    EXPECT_EQ(run("{\"id\":\"a\",\"recorded\":" + kLs + ",\"produced\":{\"tool_calls\":" + kLs + "}}\n\n" +
                  "{\"id\":2,\"recorded\":" + kLs + ",\"produced\":null}\n{\"id\":\"c\",\"recorded\":[]}"),
              "{\"id\":\"a\",\"score\":1.0}\n{\"id\":2,\"score\":0.0}\n{\"id\":\"c\",\"score\":null}\n");
}

TEST(IouCommand, BadLinesNameTheirNumber) {
    std::string error;
    EXPECT_EQ(run("{\"id\":1,\"recorded\":[]}\n{", &error), "{\"id\":1,\"score\":null}\n");
    EXPECT_NE(error.find("line 2"), std::string::npos);
    run("\n[]", &error);
    EXPECT_NE(error.find("line 2"), std::string::npos);
    run("{\"recorded\":", &error);
    EXPECT_NE(error.find("line 1"), std::string::npos);
}

}  // namespace
}  // namespace espalier::probe
