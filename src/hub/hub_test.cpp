// Names, headers and answers of the hub: what is taken, what is refused, and what a refusal says.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "hub/blob_download.h"
#include "hub/digest.h"
#include "hub/hub_error.h"
#include "hub/listing.h"
#include "hub/names.h"

namespace espalier::hub {
namespace {

constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

TEST(HubNames, RequestsAreTakenApart) {
    const auto whole = parse_repo_request("Qwen/Qwen3.5-0.8B@refs/pr/1:sub/a file.gguf");
    ASSERT_TRUE(whole);
    EXPECT_EQ(whole->repo, "Qwen/Qwen3.5-0.8B");
    EXPECT_EQ(whole->revision, "refs/pr/1");
    EXPECT_EQ(whole->file, "sub/a file.gguf");
    const auto short_name = parse_repo_request("gpt2");
    ASSERT_TRUE(short_name);
    EXPECT_EQ(short_name->revision + short_name->file, "");
}

TEST(HubNames, WhatLeadsElsewhereIsRefused) {
    for (const char* name : {"", "/", "a/", "/a", "a//b", "a/b/c", "..", "a/..", "./a", "a--b", "-a/b", "a b", "a\nb"})
        EXPECT_FALSE(is_repo_name(name)) << name;
    for (const char* name : {"", "/", "a/../b", "..", "./a", "a//b", "-a", "a:b", "a b"}) EXPECT_FALSE(is_revision(name)) << name;
    for (const char* name : {"", "/a", "a/", "a//b", "../a", "a/./b", "a\\b", "a\x01", "a\x7f"})
        EXPECT_FALSE(is_file_name(name)) << name;
    EXPECT_FALSE(is_file_name(std::string(513, 'a')));
    EXPECT_FALSE(is_file_name(std::string("a\0b", 3)));
    EXPECT_TRUE(is_file_name("a/.b/c d.e"));
    EXPECT_FALSE(is_blob_name("a/b"));
    EXPECT_FALSE(is_blob_name(".."));
    EXPECT_FALSE(is_blob_name(""));
    EXPECT_FALSE(is_commit("main"));
    EXPECT_FALSE(is_commit("0123456789ABCDEF0123456789abcdef01234567"));
    EXPECT_TRUE(is_commit(kCommit));
}

TEST(HubNames, FoldersAndUrls) {
    EXPECT_EQ(repo_folder("Qwen/Qwen3.5-0.8B"), "models--Qwen--Qwen3.5-0.8B");
    EXPECT_EQ(repo_of_folder("models--Qwen--Qwen3.5-0.8B"), "Qwen/Qwen3.5-0.8B");
    EXPECT_EQ(repo_of_folder("models--gpt2"), "gpt2");
    EXPECT_FALSE(repo_of_folder("datasets--a--b"));
    EXPECT_FALSE(repo_of_folder("models--a--b--c"));
    EXPECT_EQ(percent_encode("refs/pr/1", Slash::encode), "refs%2Fpr%2F1");
    EXPECT_EQ(percent_encode("a b/c?#%\xc3\xa9", Slash::keep), "a%20b/c%3F%23%25%C3%A9");
    EXPECT_EQ(printable("a\x1b[31m\nb"), "a [31m b");
    EXPECT_EQ(printable(std::string(300, 'x')).size(), 203u);
}

TEST(HubListing, FilesAndCommit) {
    const auto listing = parse_listing(std::string(R"({"sha": ")") + kCommit +
                                       R"(", "siblings": [{"rfilename": "config.json", "size": 3}, {"rfilename": "a/b.bin"}]})");
    ASSERT_TRUE(listing);
    EXPECT_EQ(listing->commit, kCommit);
    EXPECT_EQ(listing->files, (std::vector<std::string>{"config.json", "a/b.bin"}));
    for (const char* bad : {"", "[]", "{}", R"({"sha": 1, "siblings": []})", R"({"sha": "main", "siblings": []})",
                            R"({"sha": "0123456789abcdef0123456789abcdef01234567"})",
                            R"({"sha": "0123456789abcdef0123456789abcdef01234567", "siblings": {}})",
                            R"({"sha": "0123456789abcdef0123456789abcdef01234567", "siblings": [1]})",
                            R"({"sha": "0123456789abcdef0123456789abcdef01234567", "siblings": [{"rfilename": "../a"}]})"})
        EXPECT_FALSE(parse_listing(bad)) << bad;
}

TEST(HubListing, OnlyWhatIsNeeded) {
    const RepoListing listing{kCommit,
                              {"README.md", "config.json", "vocab.json", "merges.txt", "tokenizer.json", "a/config.json",
                               "model.safetensors", "model.gguf", "chat_template.jinja"}};
    EXPECT_EQ(small_files(listing), (std::vector<std::string>{"config.json", "tokenizer.json", "chat_template.jinja"}));
    EXPECT_EQ(*unindexed_weights(listing, "a/b"), std::vector<std::string>{"model.safetensors"});
    EXPECT_EQ(small_files({kCommit, {"vocab.json", "merges.txt"}}), (std::vector<std::string>{"vocab.json", "merges.txt"}));
    EXPECT_EQ(*unindexed_weights({kCommit, {"other.safetensors"}}, "a/b"), std::vector<std::string>{"other.safetensors"});
    const auto two = unindexed_weights({kCommit, {"x.safetensors", "y.safetensors"}}, "a/b");
    ASSERT_FALSE(two);
    EXPECT_NE(two.error().message.find("x.safetensors, y.safetensors"), std::string::npos) << two.error().message;
    EXPECT_FALSE(unindexed_weights({kCommit, {"a/x.safetensors"}}, "a/b"));
}

TEST(HubListing, ShardsOfAnIndex) {
    const auto files =
        indexed_weights(R"({"weight_map": {"x": "b.safetensors", "y": "a.safetensors", "z": "b.safetensors"}})", "i");
    ASSERT_TRUE(files);
    EXPECT_EQ(*files, (std::vector<std::string>{"a.safetensors", "b.safetensors"}));
    for (const char* bad : {"{}", R"({"weight_map": {}})", R"({"weight_map": {"x": 1}})", R"({"weight_map": {"x": "../y"}})"})
        EXPECT_FALSE(indexed_weights(bad, "i")) << bad;
}

TEST(HubHeaders, ContentRange) {
    const auto range = parse_content_range("bytes 5-9/10");
    ASSERT_TRUE(range);
    EXPECT_EQ(range->first, 5);
    EXPECT_EQ(range->last, 9);
    EXPECT_EQ(range->total, 10);
    EXPECT_EQ(parse_content_range("bytes 0-0/*")->total, -1);
    for (const char* bad : {"", "bytes", "bytes */10", "bytes 5-4/10", "bytes 0-10/10", "bytes -1-4/10", "bytes 0-4",
                            "items 0-4/10", "bytes 0-99999999999999999999/1", "bytes 0-4/ 10", "bytes 0/4-10"})
        EXPECT_FALSE(parse_content_range(bad)) << bad;
}

TEST(HubHeaders, WhatNamesAFile) {
    EXPECT_EQ(blob_of({{"etag", "W/\"abc\""}}), "abc");
    EXPECT_EQ(blob_of({{"etag", "\"pointer\""}, {"x-linked-etag", "\"linked\""}}), "linked");
    EXPECT_EQ(blob_of({{"etag", "\"../up\""}}), "");
    EXPECT_EQ(blob_of({{"etag", "\"\""}}), "");
    EXPECT_EQ(blob_of({{"etag", "\""}}), "");
    EXPECT_EQ(blob_of({}), "");
    ResponseHead head;
    head.hub = {{"x-linked-etag", "\"abc\""}, {"x-linked-size", "12"}, {"x-repo-commit", kCommit}};
    head.headers = {{"content-length", "0"}};
    const auto info = file_info(head, "f");
    ASSERT_TRUE(info);
    EXPECT_EQ(info->bytes, 12);
    EXPECT_EQ(info->blob, "abc");
    head.hub["x-linked-size"] = "-1";
    EXPECT_FALSE(file_info(head, "f"));
    head.hub.clear();
    EXPECT_FALSE(file_info(head, "f"));
}

TEST(HubDigest, KnownSums) {
    // FIPS 180-4's message "abc", and what `git hash-object` prints for it.
    const std::string path = (std::filesystem::temp_directory_path() / ("espalier-digest-" + std::to_string(getpid()))).string();
    std::ofstream(path) << "abc";
    const auto ignore = [](int64_t) {};
    EXPECT_EQ(*digest_file(path, Checksum::sha256, 3, ignore),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(*digest_file(path, Checksum::git_sha1, 3, ignore), "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f");
    EXPECT_EQ(*digest_file(path, Checksum::none, 3, ignore), "");
    EXPECT_EQ(digest_file(path, Checksum::none, 4, ignore).error().code, ErrorCode::corrupt_data);
    std::filesystem::remove(path);
    EXPECT_EQ(digest_file(path, Checksum::sha256, 3, ignore).error().code, ErrorCode::invalid_input);
    EXPECT_EQ(checksum_of(kCommit), Checksum::git_sha1);
    EXPECT_EQ(checksum_of(std::string(64, 'a')), Checksum::sha256);
    EXPECT_EQ(checksum_of(std::string(64, 'g')), Checksum::none);
}

TEST(HubErrors, WhatMayPass) {
    HttpResult result;
    result.head.status = 503;
    EXPECT_TRUE(is_passing(result));
    result.head.status = 403;
    EXPECT_FALSE(is_passing(result));
    result.head.is_hub = false;  // a signed address that ran out
    EXPECT_TRUE(is_passing(result));
    result.head.status = 404;
    EXPECT_FALSE(is_passing(result));
    result.is_stopped = true;
    EXPECT_FALSE(is_passing(result));
}

TEST(HubErrors, WordsOfTheServerStayOnTheLine) {
    HttpResult result;
    result.head.status = 418;
    result.head.host = "hub";
    result.head.headers = {{"x-error-message", "a\x1b[2J\nb"}};
    const Error error = hub_error(result, {"https://hub", "", "", ""}, {"a/b", "main", "f", ""});
    EXPECT_EQ(error.message, "hub answers 418 for a/b f: a [2J b");
}

}  // namespace
}  // namespace espalier::hub
