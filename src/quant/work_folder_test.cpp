#include "quant/work_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "checkpoint/test_folder.h"

namespace espalier::quant {
namespace {

constexpr int64_t kWidth = 3;

TEST(WorkFolder, RemembersProgress) {
    const checkpoint::TestFolder folder;
    const std::string out = folder.path("out");
    const Json key = {{"a", 1}};
    {
        auto work = WorkFolder::open(out, key, false);
        ASSERT_TRUE(work.has_value()) << work.error().message;
        EXPECT_EQ(work->progress().layers_done, -1);
        work->progress().layers_done = 5;
        work->progress().final_done = true;
        const std::vector<float> rows = {1.0f, -0.1f, 3e-20f};
        work->progress().maxima.add("x", {rows.data(), 3, 1, 3});
        ASSERT_TRUE(work->save().has_value());
    }
    folder.write("out/model.safetensors.tmp.123", "half a file");
    auto work = WorkFolder::open(out, key, true);
    ASSERT_TRUE(work.has_value()) << work.error().message;
    EXPECT_FALSE(std::filesystem::exists(out + "/model.safetensors.tmp.123"));
    EXPECT_EQ(work->progress().layers_done, 5);
    EXPECT_TRUE(work->progress().final_done);
    EXPECT_FALSE(work->progress().is_written);
    EXPECT_EQ(*work->progress().maxima.get("x"), 1.0f);
    work->remove();
    EXPECT_TRUE(std::filesystem::is_empty(out));
}

TEST(WorkFolder, RefusesOtherRunsAndOtherContent) {
    const checkpoint::TestFolder folder;
    const std::string out = folder.path("out");
    ASSERT_TRUE(WorkFolder::open(out, {{"a", 1}}, false).has_value());
    const auto again = WorkFolder::open(out, {{"a", 1}}, false);
    ASSERT_FALSE(again.has_value());
    EXPECT_NE(again.error().message.find("--resume"), std::string::npos);
    const auto other = WorkFolder::open(out, {{"a", 2}}, true);
    ASSERT_FALSE(other.has_value());
    EXPECT_NE(other.error().message.find("other options"), std::string::npos);
    folder.write("file", "x");
    EXPECT_FALSE(WorkFolder::open(folder.path("file"), {{"a", 1}}, false).has_value());
    const auto finished = WorkFolder::open(folder.path(), {{"a", 1}}, true);
    ASSERT_FALSE(finished.has_value());
    EXPECT_NE(finished.error().message.find("no unfinished run"), std::string::npos);
}

TEST(WorkFolder, DamagedProgressIsAnError) {
    const checkpoint::TestFolder folder;
    const std::string out = folder.path("out");
    ASSERT_TRUE(WorkFolder::open(out, {{"a", 1}}, false).has_value());
    for (
        const char* text :
        {"", "[]", "{}", R"({"version": 1, "key": {"a": 1}})",
         R"({"version": 1, "key": {"a": 1}, "layers_done": 1e9, "final_done": true, "mtp_done": false, "is_written": false, "maxima": {}})",
         R"({"version": 1, "key": {"a": 1}, "layers_done": 3, "final_done": 1, "mtp_done": false, "is_written": false, "maxima": {}})"}) {
        folder.write("out/.quantize/progress.json", text);
        EXPECT_FALSE(WorkFolder::open(out, {{"a", 1}}, true).has_value()) << text;
    }
}

TEST(Maxima, KeepTheLargestAndRefuseNumbersThatAreNotFinite) {
    Maxima maxima;
    const std::vector<float> rows = {1, -9, 100, 2, 3, 100};  // two rows of two, stride 3
    maxima.set_layer("layers.0");
    maxima.observe(model::ActivationSite::mlp_in, {rows.data(), 3, 2, 2});
    EXPECT_EQ(*maxima.get("layers.0.mlp_in"), 9.0f);
    EXPECT_FALSE(maxima.get("layers.1.mlp_in").has_value());
    const float bad = std::numeric_limits<float>::quiet_NaN();
    maxima.add("bad", {&bad, 1, 1, 1});
    const auto damaged = maxima.get("bad");
    ASSERT_FALSE(damaged.has_value());
    EXPECT_NE(damaged.error().message.find("not finite"), std::string::npos);
    EXPECT_FALSE(Maxima::from_json(maxima.to_json()).get("bad").has_value());
}

TEST(RowFile, ReadsWhatWasWritten) {
    const checkpoint::TestFolder folder;
    auto file = RowFile::open(folder.path("rows"), kWidth);
    ASSERT_TRUE(file.has_value());
    const std::vector<float> rows = {1, 2, 3, 4, 5, 6};
    ASSERT_TRUE(file->write(2, rows).has_value());
    ASSERT_TRUE(file->flush().has_value());
    std::vector<float> read(3);
    ASSERT_TRUE(file->read(3, read).has_value());
    EXPECT_EQ(read, (std::vector<float>{4, 5, 6}));
    EXPECT_FALSE(file->read(4, read).has_value());
    EXPECT_FALSE(RowFile::open(folder.path("missing/rows"), kWidth).has_value());
}

}  // namespace
}  // namespace espalier::quant
