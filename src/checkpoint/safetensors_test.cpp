#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace espalier::checkpoint {
namespace {

using testing::HasSubstr;

std::vector<std::byte> file_of(const std::string& header, size_t data_bytes) {
    std::vector<std::byte> file(8 + header.size() + data_bytes);
    for (size_t i = 0; i < 8; ++i) file[i] = static_cast<std::byte>(header.size() >> (8 * i));
    std::memcpy(file.data() + 8, header.data(), header.size());
    return file;
}

TEST(Safetensors, ReadsEntriesInFileOrder) {
    const auto file =
        file_of(R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},"__metadata__":{"format":"pt"},)"
                R"("a":{"data_offsets":[0,4],"shape":[2,1],"dtype":"BF16"},"s":{"dtype":"U8","shape":[],"data_offsets":[12,13]},)"
                R"("z":{"dtype":"F64","shape":[0,9223372036854775807],"data_offsets":[13,13]}}   )",
                13);
    const auto entries = parse_safetensors(file, "file");
    ASSERT_TRUE(entries) << entries.error().message;
    ASSERT_EQ(entries->size(), 4u);
    EXPECT_EQ((*entries)[0].name, "a");
    EXPECT_EQ((*entries)[0].dtype_name, "BF16");
    EXPECT_THAT((*entries)[0].shape, testing::ElementsAre(2, 1));
    EXPECT_EQ((*entries)[0].end - (*entries)[0].begin, 4u);
    EXPECT_EQ((*entries)[1].name, "b");
    EXPECT_EQ((*entries)[1].end, (*entries)[2].begin);
    EXPECT_EQ((*entries)[3].end, file.size());
}

struct Hostile {
    const char* title;
    std::string header;
    size_t data_bytes;
    const char* message;
};

const Hostile kHostile[] = {
    {"overlap", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", 6,
     "inside the tensor before it"},
    {"same_range", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
     4, "inside the tensor before it"},
    {"gap", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}})", 9,
     "belong to no tensor"},
    {"gap_at_start", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 5, "belong to no tensor"},
    {"left_over", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 5, "1 data bytes after the last tensor"},
    {"truncated_data", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 3, "may be truncated"},
    {"backwards", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", 4, "data_offsets [4, 0]"},
    {"beyond_2_63", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[9223372036854775808,9223372036854775812]}})", 4,
     "9223372036854775812"},
    {"beyond_2_64", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,18446744073709551620]}})", 4, "not an integer"},
    {"negative_offset", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[-4,0]}})", 4, "negative number -4"},
    {"float_offset", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4.0]}})", 4, "not an integer"},
    {"three_offsets", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4,8]}})", 4, "more than two"},
    {"one_offset", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0]}})", 4, "two data_offsets"},
    {"product_overflow", R"({"a":{"dtype":"F32","shape":[4611686018427387904,16],"data_offsets":[0,0]}})", 0, "no possible size"},
    {"product_wraps_to_match", R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
     "no possible size"},
    {"shape_beyond_2_63", R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,4]}})", 4, "beyond 2^63"},
    {"negative_shape", R"({"a":{"dtype":"U8","shape":[-4],"data_offsets":[0,4]}})", 4, "negative number -4"},
    {"wrong_size", R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,4]}})", 4, "needs 16"},
    {"half_byte", R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1, "no possible size"},
    {"unknown_dtype", R"({"a":{"dtype":"F3","shape":[4],"data_offsets":[0,4]}})", 4, "unknown type 'F3'"},
    {"rank", R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1,
     "more than 16 dimensions"},
    {"duplicate_name",
     R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 8,
     "'a': the name occurs twice"},
    {"duplicate_key", R"({"a":{"dtype":"U8","dtype":"I8","shape":[4],"data_offsets":[0,4]}})", 4, "'dtype' occurs twice"},
    {"missing_shape", R"({"a":{"dtype":"U8","data_offsets":[0,4]}})", 4, "needs dtype, shape"},
    {"unknown_key", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":1}})", 4, "unknown key 'x'"},
    {"not_an_object", R"({"a":3})", 0, "a number where none belongs"},
    {"null", R"({"a":null})", 0, "null where"},
    {"nested", R"({"a":{"dtype":{"x":{}},"shape":[4],"data_offsets":[0,4]}})", 4, "an object where none belongs"},
    {"nested_shape", R"({"a":{"dtype":"U8","shape":[[4]],"data_offsets":[0,4]}})", 4, "an array where none belongs"},
    {"metadata_number", R"({"__metadata__":{"a":1}})", 0, "a number where none belongs"},
    {"not_json", R"({"a":{"dtype")", 0, "not valid JSON"},
    {"two_values", R"({}{})", 0, "not valid JSON"},
    {"not_utf8", "{\"a\xff\":1}", 0, "not valid JSON"},
    {"array", "[]", 0, "does not start with '{'"},
    {"empty", "", 0, "does not start with '{'"},
    {"control_in_name", "{\"a\\n\\u001b[31m\":3}", 0, "a\\x0a\\x1b[31m"},
};

TEST(Safetensors, RefusesHostileHeaders) {
    for (const auto& hostile : kHostile) {
        SCOPED_TRACE(hostile.title);
        const auto entries = parse_safetensors(file_of(hostile.header, hostile.data_bytes), "file");
        ASSERT_FALSE(entries);
        EXPECT_EQ(entries.error().code, ErrorCode::corrupt_data);
        EXPECT_THAT(entries.error().message, HasSubstr(hostile.message));
        EXPECT_THAT(entries.error().message, testing::StartsWith("file: "));
        EXPECT_EQ(entries.error().message.find('\n'), std::string::npos);
    }
}

TEST(Safetensors, RefusesDeepNestingWithoutRecursion) {
    std::string header = "{\"__metadata__\":";
    header.append(2'000'000, '[');
    EXPECT_FALSE(parse_safetensors(file_of(header, 0), "file"));
    std::string objects;
    for (int i = 0; i < 500'000; ++i) objects += "{\"a\":";
    EXPECT_FALSE(parse_safetensors(file_of(objects, 0), "file"));
}

TEST(Safetensors, ChecksTheHeaderLengthFirst) {
    const auto message = [](uint64_t length, size_t file_bytes) {
        std::vector<std::byte> file(file_bytes);
        for (size_t i = 0; i < std::min<size_t>(8, file_bytes); ++i) file[i] = static_cast<std::byte>(length >> (8 * i));
        return parse_safetensors(file, "file").error().message;
    };
    EXPECT_THAT(message(0, 0), HasSubstr("0 bytes long"));
    EXPECT_THAT(message(1, 7), HasSubstr("7 bytes long"));
    EXPECT_THAT(message(~uint64_t{0}, 100), HasSubstr("the limit is"));
    EXPECT_THAT(message(uint64_t{1} << 63, 100), HasSubstr("the limit is"));
    EXPECT_THAT(message(~uint64_t{0} - 7, 100), HasSubstr("the limit is"));  // 8 + length would be 0
    EXPECT_THAT(message(93, 100), HasSubstr("truncated"));
}

TEST(Safetensors, EveryTruncationIsAnError) {
    const auto file = file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
    ASSERT_TRUE(parse_safetensors(file, "file"));
    for (size_t n = 0; n < file.size(); ++n) EXPECT_FALSE(parse_safetensors(std::span(file).first(n), "file")) << n;
}

TEST(Safetensors, EveryFlippedHeaderBitIsHarmless) {
    const auto file = file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
    for (size_t bit = 0; bit < (file.size() - 8) * 8; ++bit) {
        auto damaged = file;
        damaged[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
        const auto entries = parse_safetensors(damaged, "file");
        if (!entries) continue;  // a flip in the name, or F32 to another 4-byte type, leaves a valid file
        for (const auto& entry : *entries) EXPECT_LE(entry.end, damaged.size());
    }
}

}  // namespace
}  // namespace espalier::checkpoint
