// The GGUF reader on right and hostile bytes, and the values of quantised blocks.
#include "checkpoint/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/json.h"
#include "base/mapped_file.h"
#include "checkpoint/gguf_blocks.h"
#include "checkpoint/gguf_builder.h"
#include "checkpoint/gguf_names.h"

namespace espalier::checkpoint {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kF32 = 0;
constexpr uint32_t kQ8 = 8;

std::span<const std::byte> bytes_of(const std::string& file) {
    return std::as_bytes(std::span(file));
}

std::string error_of(const std::string& file) {
    const auto parsed = parse_gguf(bytes_of(file), "m.gguf");
    if (parsed) return "none";
    EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos) << parsed.error().message;
    EXPECT_THAT(parsed.error().message, testing::StartsWith("m.gguf: "));
    return parsed.error().message;
}
std::string error_of(const GgufBuilder& builder) {
    return error_of(builder.build());
}

GgufBuilder small() {
    GgufBuilder builder;
    builder.string("general.architecture", "qwen35").u32("qwen35.block_count", 4).f32("eps", 0.5f);
    builder.tensor("a", {4, 2}, kF32, std::string(32, 'a')).tensor("b", {64}, kQ8, std::string(68, 'b'));
    return builder;
}

TEST(Gguf, MetadataAndTensors) {
    for (const uint32_t version : {2u, 3u}) {
        GgufBuilder builder = small();
        builder.version = version;
        builder.entry("list", 9,
                      GgufBuilder::number<uint32_t>(8) + GgufBuilder::number<uint64_t>(2) + GgufBuilder::text("x") +
                          GgufBuilder::text("yz"));
        builder.entry("flags", 9, GgufBuilder::number<uint32_t>(7) + GgufBuilder::number<uint64_t>(2) + std::string("\1\0", 2));
        builder.entry("big", 10, GgufBuilder::number(~uint64_t{0})).entry("small", 1, "\xff");
        const std::string file = builder.build();
        const auto parsed = parse_gguf(bytes_of(file), "m.gguf");
        ASSERT_TRUE(parsed) << parsed.error().message;
        EXPECT_EQ(parsed->version, version);
        const auto& metadata = parsed->metadata;
        EXPECT_EQ(metadata.at("general.architecture").text(), "qwen35");
        EXPECT_EQ(metadata.at("qwen35.block_count").integer(), 4);
        EXPECT_EQ(metadata.at("qwen35.block_count").number(), 4.0);
        EXPECT_EQ(metadata.at("eps").number(), 0.5);
        EXPECT_EQ(metadata.at("eps").integer(), std::nullopt);
        EXPECT_EQ(metadata.at("small").integer(), -1);
        EXPECT_EQ(metadata.at("big").integer(), std::nullopt);
        EXPECT_EQ(metadata.at("list").size(), 2u);
        EXPECT_EQ(metadata.at("list").text(1), "yz");
        EXPECT_EQ(metadata.at("list").text(2), std::nullopt);
        EXPECT_EQ(metadata.at("flags").boolean(0), true);
        EXPECT_EQ(metadata.at("flags").boolean(1), false);
        EXPECT_EQ(metadata.at("flags").boolean(2), std::nullopt);
        ASSERT_EQ(parsed->tensors.size(), 2u);
        EXPECT_THAT(parsed->tensors[0].shape, ElementsAre(2, 4));
        EXPECT_EQ(parsed->tensors[0].data[31], std::byte{'a'});
        EXPECT_EQ(parsed->tensors[1].type->name, "Q8_0");
        EXPECT_EQ(parsed->tensors[1].data.size(), 68u);
        EXPECT_EQ(parsed->tensors[1].data[67], std::byte{'b'});
    }
}

TEST(Gguf, AlignmentOfTheFileItself) {
    GgufBuilder builder;
    builder.u32("general.alignment", 8).tensor_at("a", {2}, kF32, 0).tensor_at("b", {2}, kF32, 8);
    std::string file = builder.header();
    file.resize((file.size() + 7) / 8 * 8, '\0');
    const auto parsed = parse_gguf(bytes_of(file += std::string(8, 'a') + std::string(8, 'b')), "m.gguf");
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(parsed->tensors[1].data[0], std::byte{'b'});
    for (const uint32_t bad : {0u, 24u, 1u << 30}) {
        EXPECT_THAT(error_of(small().u32("general.alignment", bad)), HasSubstr("general.alignment is"));
    }
    EXPECT_THAT(error_of(small().string("general.alignment", "8")), HasSubstr("general.alignment is '8'"));
}

TEST(Gguf, EveryTruncationIsAnError) {
    const std::string file = small().build();
    const size_t data_end = file.size() - 28;  // the last tensor's padding may be missing
    for (size_t size = 0; size < data_end; ++size) EXPECT_NE(error_of(file.substr(0, size)), "none") << size;
    EXPECT_EQ(error_of(file.substr(0, data_end)), "none");
}

TEST(Gguf, WrongBeginnings) {
    EXPECT_THAT(error_of("safetensors"), HasSubstr("does not begin with 'GGUF'"));
    GgufBuilder builder = small();
    builder.version = 1;
    EXPECT_THAT(error_of(builder), HasSubstr("GGUF version 1, supported are 2 and 3"));
    builder.version = 0x03000000;
    EXPECT_THAT(error_of(builder), HasSubstr("big-endian"));
    const auto counts = [](uint64_t tensors, uint64_t keys) {
        return "GGUF" + GgufBuilder::number<uint32_t>(3) + GgufBuilder::number(tensors) + GgufBuilder::number(keys) +
               std::string(99, '\0');
    };
    EXPECT_THAT(error_of(counts(uint64_t{1} << 63, 0)),
                HasSubstr("the number of tensors at byte 8 is 9223372036854775808, at most 4"));
    EXPECT_THAT(error_of(counts(0, ~uint64_t{0})), HasSubstr("the number of metadata entries at byte 16"));
}

TEST(Gguf, WrongMetadata) {
    EXPECT_THAT(error_of(small().u32("eps", 1)), HasSubstr("metadata 'eps' occurs twice"));
    EXPECT_THAT(error_of(small().u32("", 1)), HasSubstr("has 0 bytes, expected 1 to"));
    EXPECT_THAT(error_of(small().u32(std::string(2000, 'k'), 1)), HasSubstr("has 2000 bytes"));
    EXPECT_THAT(error_of(small().entry("k", 13, "")), HasSubstr("metadata 'k' is of kind 13, expected 0 to 12"));
    EXPECT_THAT(error_of(small().entry("k", 8, GgufBuilder::number(~uint64_t{0}))),
                HasSubstr("needs 18446744073709551615 bytes"));
    const auto array = [](uint32_t kind, uint64_t n) {
        return small().entry("k", 9, GgufBuilder::number(kind) + GgufBuilder::number(n));
    };
    EXPECT_THAT(error_of(array(9, 1)), HasSubstr("'k' is an array of arrays"));
    EXPECT_THAT(error_of(array(12, uint64_t{1} << 61)), HasSubstr("the length of array 'k'"));  // times 8 is 0 in 64 bits
    EXPECT_THAT(error_of(array(8, uint64_t{1} << 60)), HasSubstr("the length of array 'k'"));
    EXPECT_THAT(error_of(array(77, 1)), HasSubstr("of kind 77"));
}

TEST(Gguf, WrongTensors) {
    constexpr uint64_t kHuge = uint64_t{1} << 62;
    EXPECT_THAT(error_of(small().tensor_at("a", {4}, kF32, 128)), HasSubstr("tensor 'a' occurs twice"));
    EXPECT_THAT(error_of(small().tensor_at("c", {1, 1, 1, 1, 1}, kF32, 0)), HasSubstr("has 5 dimensions"));
    EXPECT_THAT(error_of(small().tensor_at("c", {0}, kF32, 0)), HasSubstr("has an extent of 0"));
    EXPECT_THAT(error_of(small().tensor_at("c", {uint64_t{1} << 63}, kF32, 0)),
                HasSubstr("has an extent of 9223372036854775808"));
    EXPECT_THAT(error_of(small().tensor_at("c", {kHuge, 4}, kF32, 0)), HasSubstr("no possible size"));
    EXPECT_THAT(error_of(small().tensor_at("c", {kHuge}, kF32, 0)), HasSubstr("no possible size"));
    EXPECT_THAT(error_of(small().tensor_at("c", {33}, kQ8, 0)), HasSubstr("rows of 33 values, Q8_0 is stored in blocks of 32"));
    EXPECT_THAT(error_of(small().tensor_at("c", {}, kQ8, 0)), HasSubstr("no possible size"));
    EXPECT_THAT(error_of(small().tensor_at("c", {4}, 4, 0)), HasSubstr("'c' has the type number 4"));
    EXPECT_THAT(error_of(small().tensor_at("c", {4}, kF32, 8)), HasSubstr("expected a multiple of the alignment 32"));
    EXPECT_THAT(error_of(small().tensor_at("c", {4}, kF32, ~uint64_t{31})), HasSubstr("it is truncated"));
    EXPECT_THAT(error_of(small().tensor_at("c", {4}, kF32, 32)), AllOf(HasSubstr("tensor '"), HasSubstr("inside '")));
    EXPECT_THAT(error_of(small().tensor_at("x\ny", {0}, kF32, 0)), HasSubstr("'x\\x0ay'"));
}

TEST(GgufBlocks, ValuesAreThoseOfTheReference) {
    const auto text = read_file(std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/gguf/blocks.json", 1 << 20);
    ASSERT_TRUE(text) << text.error().message;
    const auto golden = parse_json(*text, "blocks.json");
    ASSERT_TRUE(golden) << golden.error().message;
    EXPECT_EQ(golden->size(), 13u);
    for (const auto& [name, blocks] : golden->items()) {
        const GgufTensorType* type = nullptr;
        for (uint32_t id = 0; id < 64; ++id) {
            if (gguf_tensor_type(id) != nullptr && gguf_tensor_type(id)->name == name) type = gguf_tensor_type(id);
        }
        ASSERT_NE(type, nullptr) << name;
        ASSERT_TRUE(can_expand(*type)) << name;
        const auto hex = blocks["bytes"].get<std::string>();
        std::vector<std::byte> data;
        for (size_t i = 0; i < hex.size(); i += 2)
            data.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
        std::vector<float> values(static_cast<size_t>(2 * type->block_values));
        expand_gguf_blocks(*type, data, values);
        EXPECT_EQ(values, blocks["values"].get<std::vector<float>>()) << name;
    }
    EXPECT_FALSE(can_expand(*gguf_tensor_type(0)));
    EXPECT_FALSE(can_expand(*gguf_tensor_type(16)));
}

TEST(GgufNames, TrunkAndMtpLayer) {
    EXPECT_EQ(normalise_gguf_name("token_embd.weight", 4)->name, "embed_tokens.weight");
    EXPECT_EQ(normalise_gguf_name("blk.3.attn_q_norm.weight", 4)->name, "layers.3.self_attn.q_norm.weight");
    EXPECT_EQ(normalise_gguf_name("blk.3.attn_q_norm.weight", 4)->transform, GgufTransform::minus_one);
    EXPECT_EQ(normalise_gguf_name("blk.0.ssm_norm.weight", 4)->transform, GgufTransform::none);
    EXPECT_EQ(normalise_gguf_name("blk.4.ffn_up.weight", 4)->name, "mtp.layers.0.mlp.up_proj.weight");
    EXPECT_EQ(normalise_gguf_name("blk.4.nextn.eh_proj.weight", 4)->name, "mtp.fc.weight");
    EXPECT_EQ(normalise_gguf_name("blk.0.ffn_up.scale", 4)->name, "layers.0.mlp.up_proj.weight_scale_2");
    EXPECT_EQ(normalise_gguf_name("blk.0.ffn_up.input_scale", 4)->name, "layers.0.mlp.up_proj.input_scale");
    for (const char* name : {"blk.0.ssm_a.scale", ".scale", "blk.3.nextn.eh_proj.weight", "blk.5.ffn_up.weight",
                             "blk.00.ffn_up.weight", "blk..ffn_up.weight", "blk.1", "blk.+1.ffn_up.weight",
                             "blk.99999999999999999999.ffn_up.weight", "rope_freqs.weight", ""}) {
        EXPECT_FALSE(normalise_gguf_name(name, 4)) << name;
    }
}

TEST(GgufNames, ValueHeadsOfAKeyHeadLieApartInTheFile) {
    // Two key heads with three value heads each: ours 0 1 2 | 3 4 5, the file's 0 3 1 4 2 5.
    std::vector<int64_t> places;
    for (int64_t head = 0; head < 6; ++head) places.push_back(gguf_value_head(head, 2, 6));
    EXPECT_THAT(places, ElementsAre(0, 2, 4, 1, 3, 5));
    for (int64_t head = 0; head < 6; ++head) EXPECT_EQ(gguf_value_head(head, 6, 6), head);
}

}  // namespace
}  // namespace espalier::checkpoint
