#include "checkpoint/writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/mapped_file.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/test_folder.h"

namespace espalier::checkpoint {
namespace {

TEST(Writer, WritesWhatTheReaderReads) {
    const TestFolder folder;
    const std::vector<TensorToWrite> tensors = {make_floats("a", {2, 2}, {1, 2, 3, 4}), make_tensor("b", Dtype::bf16, {3}, 7),
                                                make_tensor("c", Dtype::u8, {}, 9), make_tensor("none", Dtype::f32, {0, 5})};
    ASSERT_TRUE(write_safetensors(folder.path("x.safetensors"), tensors));
    const auto file = MappedFile::open(folder.path("x.safetensors"));
    ASSERT_TRUE(file);
    const auto entries = parse_safetensors(file->bytes(), "x");
    ASSERT_TRUE(entries) << entries.error().message;
    ASSERT_EQ(entries->size(), 4u);
    EXPECT_EQ((*entries)[0].begin % 64, 0u);
    EXPECT_EQ((*entries)[1].name, "b");
    EXPECT_EQ(file->bytes()[(*entries)[1].begin], std::byte{7});
    EXPECT_EQ(std::filesystem::directory_iterator(folder.path())->path().filename(), "x.safetensors");  // no temporary file stays
}

TEST(Writer, LargePiecesAndManySmallOnesAreTheSameBytes) {
    const TestFolder folder;
    const std::vector<std::byte> data(5'000'000, std::byte{0x5a});
    const auto produce_in = [&](size_t piece) {
        return [&data, piece](const ByteSink& sink) -> Status {
            for (size_t i = 0; i < data.size(); i += piece)
                TRY(sink(std::span(data).subspan(i, std::min(piece, data.size() - i))));
            return {};
        };
    };
    const auto shape = std::vector<int64_t>{static_cast<int64_t>(data.size())};
    ASSERT_TRUE(write_safetensors(folder.path("a"), {{"x", Dtype::u8, shape, produce_in(data.size())}}));
    ASSERT_TRUE(write_safetensors(folder.path("b"), {{"x", Dtype::u8, shape, produce_in(777)}}));
    EXPECT_EQ(folder.read("a"), folder.read("b"));
}

TEST(Writer, AWrongByteCountOrNameLeavesNoFile) {
    const TestFolder folder;
    const auto produce = [](const ByteSink& sink) { return sink(std::vector<std::byte>(3)); };
    EXPECT_EQ(write_safetensors(folder.path("x"), {{"x", Dtype::u8, {4}, produce}}).error().code, ErrorCode::internal);
    EXPECT_FALSE(write_safetensors(folder.path("x"), {make_tensor("a", Dtype::u8, {1}), make_tensor("a", Dtype::u8, {1})}));
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    EXPECT_THAT(write_safetensors(folder.path("no/such/x"), {}).error().message, testing::HasSubstr("cannot create"));
}

// How an interrupted write of many shards goes on: what is complete is not produced again.
TEST(Writer, KeepsShardsThatAreComplete) {
    const TestFolder folder;
    int n_produced = 0;
    const auto tensor = [&](const std::string& name, size_t bytes) {
        return TensorToWrite{name, Dtype::u8, {static_cast<int64_t>(bytes)}, [&n_produced, bytes](const ByteSink& sink) {
                                 ++n_produced;
                                 return sink(std::vector<std::byte>(bytes, std::byte{7}));
                             }};
    };
    const std::vector<TensorToWrite> tensors = {tensor("a", 100), tensor("b", 100), tensor("c", 100)};
    const auto write = [&](Existing existing) {
        n_produced = 0;
        return write_weights(folder.path(), tensors, 150, Flush::to_cache, existing).has_value();
    };
    ASSERT_TRUE(write(Existing::keep));
    EXPECT_EQ(n_produced, 3);
    const std::string second = folder.read("model-00002-of-00003.safetensors");
    ASSERT_TRUE(write(Existing::keep));
    EXPECT_EQ(n_produced, 0);
    folder.write("model-00002-of-00003.safetensors", second.substr(0, second.size() - 1));  // cut
    std::filesystem::remove(folder.path("model-00003-of-00003.safetensors"));
    ASSERT_TRUE(write(Existing::keep));
    EXPECT_EQ(n_produced, 2);
    EXPECT_EQ(folder.read("model-00002-of-00003.safetensors"), second);
    std::string other = second;
    other[other.find("\"b\"") + 1] = 'x';  // another tensor
    folder.write("model-00002-of-00003.safetensors", other);
    ASSERT_TRUE(write(Existing::keep));
    EXPECT_EQ(n_produced, 1);
    ASSERT_TRUE(write(Existing::replace));
    EXPECT_EQ(n_produced, 3);
}

TEST(Writer, ShardsCarryAnIndex) {
    const TestFolder folder;
    std::vector<TensorToWrite> tensors;
    for (int i = 0; i < 5; ++i) tensors.push_back(make_tensor("t" + std::to_string(i), Dtype::u8, {100}));
    ASSERT_TRUE(write_weights(folder.path(), tensors, 250));
    const auto index = parse_json(folder.read("model.safetensors.index.json"), "index");
    ASSERT_TRUE(index);
    EXPECT_EQ((*index)["metadata"]["total_size"], 500);
    EXPECT_EQ((*index)["weight_map"]["t1"], "model-00001-of-00003.safetensors");
    EXPECT_EQ((*index)["weight_map"]["t4"], "model-00003-of-00003.safetensors");
    ASSERT_TRUE(write_weights(folder.path(), {tensors[0]}, 250));
    EXPECT_TRUE(std::filesystem::exists(folder.path("model.safetensors")));
}

}  // namespace
}  // namespace espalier::checkpoint
