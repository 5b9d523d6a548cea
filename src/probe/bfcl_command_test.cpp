#include "probe/bfcl_command.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/json.h"

namespace espalier::probe {
namespace {

const std::string kGolden = std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/text/";

TEST(BfclCommand, ReferenceLines) {
    std::ifstream in(kGolden + "bfcl-verdicts.jsonl");
    std::ostringstream out;
    const Status status = run_bfcl_verdicts(kGolden + "bfcl-originals.jsonl", in, out);
    ASSERT_TRUE(status.has_value()) << status.error().message;
    std::ifstream wanted(kGolden + "bfcl-verdicts.jsonl");
    std::istringstream got(out.str());
    std::string want_line;
    std::string got_line;
    int n_lines = 0;
    for (; std::getline(wanted, want_line) && std::getline(got, got_line); ++n_lines) {
        const Json want = Json::parse(want_line);
        EXPECT_EQ(got_line, dump_json({{"id", want["id"]}, {"score", want["score"]}, {"error_type", want["error_type"]}}));
    }
    EXPECT_EQ(n_lines, 1075);
}

TEST(BfclCommand, BadInputIsNamed) {
    const auto message = [](const std::string& originals, const std::string& input) {
        std::istringstream in(input);
        std::ostringstream out;
        const Status status = run_bfcl_verdicts(originals, in, out);
        return status ? std::string() : status.error().message;
    };
    const std::string originals = kGolden + "bfcl-originals.jsonl";
    EXPECT_NE(message("/no/such/file", "").find("/no/such/file"), std::string::npos);
    EXPECT_NE(message(kGolden + "iou.jsonl", "").find("line 1"), std::string::npos);
    EXPECT_NE(message(originals, "\n{").find("line 2"), std::string::npos);
    EXPECT_NE(message(originals, "{\"original\":\"nobody\"}").find("line 1"), std::string::npos);
    EXPECT_EQ(message(originals, "\n"), "");
}

}  // namespace
}  // namespace espalier::probe
