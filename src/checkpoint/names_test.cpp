#include "checkpoint/names.h"

#include <gtest/gtest.h>

namespace espalier::checkpoint {
namespace {

TEST(Names, PrefixesAreStripped) {
    EXPECT_EQ(normalise_name("model.language_model.layers.0.mlp.up_proj.weight"), "layers.0.mlp.up_proj.weight");
    EXPECT_EQ(normalise_name("language_model.model.layers.0.mlp.up_proj.weight"), "layers.0.mlp.up_proj.weight");
    EXPECT_EQ(normalise_name("model.layers.0.mlp.up_proj.weight"), "layers.0.mlp.up_proj.weight");
    EXPECT_EQ(normalise_name("language_model.lm_head.weight"), "lm_head.weight");
    EXPECT_EQ(normalise_name("mtp.fc.weight"), "mtp.fc.weight");
    EXPECT_EQ(normalise_name("lm_head.weight"), "lm_head.weight");
    EXPECT_EQ(normalise_name("model."), "");
    EXPECT_TRUE(is_visual(normalise_name("model.visual.merger.weight")));
    EXPECT_FALSE(is_visual(normalise_name("visualise.weight")));
}

TEST(Names, PrintableIsOneLine) {
    EXPECT_EQ(printable("a.b"), "a.b");
    EXPECT_EQ(printable("a\n\x1b\xff"), "a\\x0a\\x1b\\xff");
    EXPECT_LT(printable(std::string(100000, 'x')).size(), 400u);
}

bool globs(std::string_view pattern, std::string_view name) {
    return NamePattern::glob(pattern).matches(name, normalise_name(name));
}

TEST(Names, Globs) {
    EXPECT_TRUE(globs("lm_head", "lm_head"));
    EXPECT_TRUE(globs("*lm_head*", "model.lm_head"));
    EXPECT_TRUE(globs("model.visual*", "model.visual.blocks.0.attn.qkv"));
    EXPECT_TRUE(globs("mtp.fc*", "mtp.fc"));
    EXPECT_FALSE(globs("mtp.fc*", "mtp.layers.0.mlp.up_proj"));
    EXPECT_TRUE(globs("model.layers.?.mlp*", "model.layers.3.mlp.up_proj"));
    EXPECT_TRUE(globs("model.layers.0.x", "model.language_model.layers.0.x"));  // other nesting in the metadata
    EXPECT_TRUE(globs("layers.0.x", "model.layers.0.x"));
    EXPECT_FALSE(globs("model.layers.1", "model.layers.10"));
    EXPECT_FALSE(globs("", "lm_head"));
    EXPECT_TRUE(globs("*", "lm_head"));
    // Exponential for a backtracking matcher.
    EXPECT_FALSE(globs("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", std::string(5000, 'a')));
}

TEST(Names, CompressedTensorsPatterns) {
    const auto matches = [](std::string_view pattern, std::string_view name) {
        const auto compiled = NamePattern::compressed_tensors(pattern);
        return compiled && compiled->matches(name, normalise_name(name));
    };
    EXPECT_TRUE(matches("lm_head", "lm_head"));
    EXPECT_FALSE(matches("lm", "lm_head"));
    EXPECT_TRUE(matches("model.layers.0.x", "model.language_model.layers.0.x"));
    EXPECT_TRUE(matches("re:.*lm_head", "model.lm_head"));
    EXPECT_TRUE(matches("re:.*visual.*", "model.visual.blocks"));
    EXPECT_TRUE(matches("re:^mtp", "mtp.fc"));
    EXPECT_FALSE(matches("re:mtp$", "mtp.fc"));
    EXPECT_TRUE(matches(R"(re:.*mlp\.gate$)", "model.layers.0.mlp.gate"));
    EXPECT_FALSE(matches(R"(re:.*mlp\.gate$)", "model.layers.0.mlp.gate_proj"));
    EXPECT_FALSE(matches(R"(re:.*mlp\.gate$)", "model.layers.0.mlpxgate"));
    EXPECT_TRUE(matches("re:.*linear_attn.+", "layers.0.linear_attn.out_proj"));
    EXPECT_FALSE(matches("re:.*linear_attn.+", "layers.0.linear_attn"));
    for (const char* unread :
         {"re:.*(a|b)", "re:in_proj_[ab]", "re:a+", "re:a?", R"(re:\d+)", "re:(a*)*b", "re:a{2}", "re:$a", "re:a\\"}) {
        EXPECT_FALSE(NamePattern::compressed_tensors(unread)) << unread;
    }
}

TEST(Names, DottedParts) {
    const auto matches = [](std::string_view pattern, std::string_view name) {
        return NamePattern::dotted_part(pattern).matches(name, normalise_name(name));
    };
    EXPECT_TRUE(matches("lm_head", "lm_head"));
    EXPECT_TRUE(matches("mtp", "mtp.fc"));
    EXPECT_TRUE(matches("in_proj_a", "model.layers.0.linear_attn.in_proj_a"));
    EXPECT_TRUE(matches("model.layers.1", "model.layers.1.mlp.up_proj"));
    EXPECT_FALSE(matches("model.layers.1", "model.layers.10.mlp.up_proj"));
}

}  // namespace
}  // namespace espalier::checkpoint
