#include "decode/draft_options.h"

#include <gtest/gtest.h>

namespace espalier::decode {
namespace {

TEST(DraftOptions, WordsAndTheirMeaning) {
    const auto all = DraftOptions::parse("auto");
    ASSERT_TRUE(all.has_value());
    EXPECT_TRUE(all->has_mtp && all->has_suffix && all->has_template && all->has_prefill && all->is_adaptive);
    EXPECT_TRUE(DraftOptions::parse("off")->is_off());
    const auto chain = DraftOptions::parse("mtp:steps=3,topk=1");
    ASSERT_TRUE(chain.has_value());
    EXPECT_TRUE(chain->has_mtp && !chain->has_suffix && !chain->is_adaptive);
    EXPECT_EQ(chain->mtp_steps, 3);
    EXPECT_EQ(chain->mtp_topk, 1);
    EXPECT_EQ(chain->nodes_max, 3);
    const auto tree = DraftOptions::parse("mtp:steps=8,topk=2,nodes=16,suffix,prefill");
    ASSERT_TRUE(tree.has_value());
    EXPECT_EQ(tree->nodes_max, 16);
    EXPECT_TRUE(tree->has_suffix && tree->has_prefill && !tree->has_template);
}

TEST(DraftOptions, TheTextIsReadAgain) {
    for (const char* text : {"auto", "off", "mtp", "suffix", "suffix,template,prefill", "mtp:steps=8,topk=2,nodes=16",
                             "mtp:steps=3,topk=1,nodes=3,suffix"}) {
        const auto options = DraftOptions::parse(text);
        ASSERT_TRUE(options.has_value()) << text;
        EXPECT_EQ(options->text(), text);
    }
}

TEST(DraftOptions, UnknownWordsAndNumbersOutOfRangeAreNamed) {
    for (const char* text : {"", "on", "mtp,", "suffix,,template", "mtp:steps=0", "mtp:steps=33", "mtp:topk=9", "mtp:nodes=65",
                             "mtp:steps=", "mtp:steps=3x", "mtp:depth=3", "mtp:", "suffix,steps=3", "steps=3", "auto,suffix",
                             "prefill", "mtp:steps=99999999999999999999"}) {
        const auto options = DraftOptions::parse(text);
        ASSERT_FALSE(options.has_value()) << text;
        EXPECT_EQ(options.error().code, ErrorCode::invalid_input);
        EXPECT_NE(options.error().message.find("--draft"), std::string::npos);
    }
}

}  // namespace
}  // namespace espalier::decode
