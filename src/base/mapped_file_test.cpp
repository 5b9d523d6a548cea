#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

namespace espalier {
namespace {

class MappedFileTest : public testing::Test {
protected:
    void SetUp() override {
        const auto* info = testing::UnitTest::GetInstance()->current_test_info();
        folder_ = testing::TempDir() + "mapped_file_" + info->name() + "_" + std::to_string(::getpid());
        std::filesystem::create_directories(folder_);
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    std::string path(const std::string& name) const { return folder_ + "/" + name; }
    std::string write(const std::string& name, const std::string& bytes) const {
        EXPECT_TRUE(write_file_atomic(path(name), bytes));
        return path(name);
    }

private:
    std::string folder_;
};

TEST_F(MappedFileTest, ShowsTheBytesOfTheFile) {
    const std::string text("abc\0def", 7);
    auto mapped = MappedFile::open(write("x", text));
    ASSERT_TRUE(mapped);
    ASSERT_EQ(mapped->bytes().size(), text.size());
    EXPECT_EQ(std::memcmp(mapped->bytes().data(), text.data(), text.size()), 0);
    EXPECT_EQ(mapped->path(), path("x"));
}

TEST_F(MappedFileTest, AnEmptyFileIsAnEmptySpan) {
    auto mapped = MappedFile::open(write("empty", ""));
    ASSERT_TRUE(mapped);
    EXPECT_TRUE(mapped->bytes().empty());
    mapped->release(0, 100);
}

TEST_F(MappedFileTest, ErrorsNameThePathAndTheReason) {
    const auto missing = MappedFile::open(path("missing"));
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().code, ErrorCode::invalid_input);
    EXPECT_EQ(missing.error().message, path("missing") + ": cannot open: No such file or directory");
    const auto folder = MappedFile::open(testing::TempDir());
    ASSERT_FALSE(folder);
    EXPECT_NE(folder.error().message.find("not a regular file"), std::string::npos);
}

TEST_F(MappedFileTest, MovingKeepsTheMapAndLeavesNothingBehind) {
    auto first = MappedFile::open(write("a", "aaaa"));
    auto second = MappedFile::open(write("b", "bb"));
    ASSERT_TRUE(first && second);
    MappedFile moved = *std::move(first);
    EXPECT_EQ(moved.bytes().size(), 4u);
    moved = *std::move(second);
    EXPECT_EQ(moved.path(), path("b"));
    EXPECT_EQ(static_cast<char>(moved.bytes()[1]), 'b');
}

TEST_F(MappedFileTest, ReleasedPagesReadTheSame) {
    const std::string text(3 * 4096 + 17, 'q');
    auto mapped = MappedFile::open(write("big", text));
    ASSERT_TRUE(mapped);
    mapped->release(1, text.size());
    mapped->release(text.size() + 5, 1);
    EXPECT_EQ(std::memcmp(mapped->bytes().data(), text.data(), text.size()), 0);
}

TEST_F(MappedFileTest, ReadFileHasALimit) {
    const std::string file = write("x", "12345");
    EXPECT_EQ(*read_file(file, 5), "12345");
    const auto too_long = read_file(file, 4);
    ASSERT_FALSE(too_long);
    EXPECT_EQ(too_long.error().code, ErrorCode::exhausted);
    EXPECT_EQ(too_long.error().message, file + ": 5 bytes, the limit is 4");
    EXPECT_FALSE(read_file(path("missing"), 4));
}

TEST_F(MappedFileTest, WritingReplacesAndLeavesNoTemporaryFile) {
    const std::string file = write("x", "old and longer");
    write("x", "new");
    EXPECT_EQ(*read_file(file, 100), "new");
    const std::filesystem::path folder = std::filesystem::path(file).parent_path();
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()), 1);
}

TEST_F(MappedFileTest, AMapOutlivesTheFilesReplacement) {
    auto mapped = MappedFile::open(write("x", "old"));
    ASSERT_TRUE(mapped);
    write("x", "new");
    EXPECT_EQ(static_cast<char>(mapped->bytes()[0]), 'o');
}

TEST_F(MappedFileTest, APipeIsNeitherReadNorReplaced) {
    const std::string pipe = path("pipe");
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_FALSE(MappedFile::open(pipe)) << "and does not wait for a writer";
    EXPECT_FALSE(read_file(pipe, 100));
    EXPECT_FALSE(write_file_atomic(pipe, "x"));
    EXPECT_TRUE(std::filesystem::is_fifo(pipe));
    const std::string link = path("link");
    std::filesystem::create_symlink(pipe, link);
    EXPECT_FALSE(write_file_atomic(link, "x"));
    EXPECT_TRUE(std::filesystem::is_symlink(link));
}

TEST_F(MappedFileTest, WritingToAMissingFolderFails) {
    const Status status = write_file_atomic(path("no/such/folder"), "x");
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::invalid_input);
}

}  // namespace
}  // namespace espalier
