// Real sources on a small model with random weights: replies are those of plain decoding, and the MTP head's memory is the same
// however the text came to be.
#include "decode/merged_drafts.h"

#include <gtest/gtest.h>

#include <optional>

#include "cache/prefix_tree.h"
#include "decode/step_loop_fixture.h"

namespace espalier::decode {
namespace {

class MergedDraftsTest : public StepLoopTest {
protected:
    // Trees have the same size on any machine unless they are sized by measured costs.
    std::unique_ptr<Drafting> drafting(const std::string& draft, bool is_measuring = false) {
        Drafting::Parts parts;
        parts.is_measuring = is_measuring;
        parts.options = *DraftOptions::parse(draft);
        auto result = std::make_unique<Drafting>(std::move(parts));
        EXPECT_TRUE(result->attach(*forward_, kLetters).has_value());
        return result;
    }
    void attach(Drafting& drafting, Generation& generation) {
        generation.set_drafts(drafting.begin({generation.prompt(), generation.params().max_tokens, nullptr,
                                              generation.params().stop_ids, &generation.sequence()}));
    }
    static GenerationParams params(float temperature) {
        GenerationParams result;
        result.max_tokens = 40;
        result.sampling.temperature = temperature;
        result.sampling.seed = 3;
        return result;
    }
    // Random weights say nothing twice and their drafts are never right; a small alphabet makes them.
    static constexpr int32_t kLetters = 4;
    void SetUp() override {
        StepLoopTest::SetUp();
        loop_ = std::move(*StepLoop::create(*forward_, kLetters));
    }
};

TEST_F(MergedDraftsTest, RepliesAreThoseOfPlainDecodingWithEverySetting) {
    struct Case {
        std::vector<TokenId> prompt;
        GenerationParams with;
        std::vector<TokenId> reply;
        std::vector<TokenId> tokens;
        int64_t rounds = 0;
    };
    std::vector<Case> cases;
    for (uint32_t seed = 0; seed < 3; ++seed) {
        Case c{ids(30 + 50 * seed, seed), params(seed % 2 == 0 ? 0.0f : 0.7f), {}, {}, 0};
        Generation plain = make(c.prompt, c.with);
        c.reply = run(plain);
        c.tokens.assign(plain.sequence().tokens().begin(), plain.sequence().tokens().end());
        c.rounds = plain.rounds;
        cases.push_back(std::move(c));
    }
    for (const char* draft :
         {"auto", "mtp", "suffix", "suffix,template,prefill", "mtp:steps=3,topk=1", "mtp:steps=8,topk=2,nodes=16",
          "mtp:steps=32,topk=8,nodes=64", "mtp:steps=4,topk=2,nodes=12,suffix,prefill"}) {
        const auto drafts = drafting(draft);
        DraftCounts counts;
        for (size_t i = 0; i < cases.size(); ++i) {
            Generation drafted = make(cases[i].prompt, cases[i].with);
            attach(*drafts, drafted);
            EXPECT_EQ(run(drafted, i == 0 ? 96 : 17), cases[i].reply) << draft << " case " << i;
            EXPECT_TRUE(std::ranges::equal(drafted.sequence().tokens(), cases[i].tokens));
            EXPECT_LE(drafted.rounds, cases[i].rounds);
            counts.add(drafted.draft_counts);
        }
        EXPECT_GT(counts.accepted, 0) << draft;
        const bool has_mtp = std::string(draft).find("mtp") != std::string::npos;
        EXPECT_EQ(counts.drafted_by[static_cast<size_t>(DraftKind::mtp)] > 0, has_mtp || std::string(draft) == "auto") << draft;
    }
}

TEST_F(MergedDraftsTest, SizesByMeasuredCostChangeNoReply) {
    Generation plain = make(ids(60, 2), params(0.0f));
    const auto expected = run(plain);
    for (const char* draft : {"auto", "suffix"}) {
        const auto drafts = drafting(draft, true);
        Generation drafted = make(ids(60, 2), params(0.0f));
        attach(*drafts, drafted);
        EXPECT_EQ(run(drafted), expected) << draft;
    }
}

TEST_F(MergedDraftsTest, FixedTreesHaveTheirSize) {
    const auto drafts = drafting("mtp:steps=8,topk=2,nodes=16");
    GenerationParams with;
    with.max_tokens = 20;
    Generation generation = make(ids(40, 1), with);
    attach(*drafts, generation);
    run(generation);
    // The prompt's pass carries none; near the reply's end the tree is cut to what may still come.
    EXPECT_LE(generation.draft_counts.drafted, 16 * generation.rounds);
    EXPECT_GT(generation.draft_counts.drafted, 16 * (generation.rounds - 6));
}

// The head's candidates after a text, with slots that came to be in a given way.
std::vector<std::pair<TokenId, float>> candidates_after(MtpDrafter& head, cache::Sequence& sequence, TokenId root,
                                                        MtpDrafter::Rows& rows) {
    std::vector<std::pair<TokenId, float>> result;
    std::array<MtpCandidate, kMtpTopkMax> out;
    EXPECT_TRUE(head.begin(rows, sequence, root));
    for (int step = 0; step < 3; ++step) {
        const int32_t n = head.candidates(out, kMtpTopkMax);
        EXPECT_EQ(n, 4);
        for (const MtpCandidate& candidate : std::span(out).first(4)) result.emplace_back(candidate.token, candidate.probability);
        EXPECT_TRUE(head.step(out[0].token));
    }
    head.end(rows, sequence);
    return result;
}

TEST_F(MergedDraftsTest, TheHeadsSlotsDoNotDependOnHowTheTextCameToBe) {
    auto head = std::move(*MtpDrafter::create(*forward_, kLetters));
    const auto with = params(0.0f);
    Generation plain = make(ids(70, 5), with);
    const auto reply = run(plain);
    std::vector<TokenId> text = ids(70, 5);
    text.insert(text.end(), reply.begin(), reply.end());
    const TokenId root = text.back();
    text.pop_back();

    // All of it as a prompt, in chunks of various sizes.
    std::vector<std::vector<std::pair<TokenId, float>>> seen;
    const std::vector<std::vector<int32_t>> splits = {{96, 96}, {7, 64, 96}, {1, 1, 40, 96}};
    for (const auto& split : splits) {
        auto sequence = std::move(*cache::Sequence::create(*memory_, 512));
        MtpDrafter::Rows rows;
        head->open(rows, sequence);
        size_t at = 0;
        for (size_t begin = 0; begin < text.size(); ++at) {
            const size_t n = std::min(text.size() - begin, static_cast<size_t>(split[std::min(at, split.size() - 1)]));
            const model::Segment segment{&sequence, std::span(text).subspan(begin, n), {}, static_cast<int32_t>(n)};
            ASSERT_TRUE(forward_->run({&segment, 1}).has_value());
            forward_->commit_spine(0);
            std::vector<int32_t> nodes(n);
            for (size_t i = 0; i < n; ++i) nodes[i] = static_cast<int32_t>(i);
            head->committed(rows, sequence, {forward_.get(), 0, nodes, n > 1});
            begin += n;
        }
        seen.push_back(candidates_after(*head, sequence, root, rows));
        EXPECT_EQ(sequence.mtp_length(), sequence.length());
    }
    EXPECT_EQ(seen[1], seen[0]);
    EXPECT_EQ(seen[2], seen[0]);

    // As prompt and reply, with drafts accepted on the way, from a snapshot as well.
    const auto drafts = drafting("mtp,suffix,prefill");
    for (const bool is_resumed : {false, true}) {
        std::optional<cache::Snapshot> snapshot;
        GenerationParams in_two = with;
        in_two.boundaries = {50, 70};
        Generation first = make(ids(70, 5), in_two);
        attach(*drafts, first);
        EXPECT_EQ(run(first, 96,
                      [&](Generation& g) {
                          if (g.sequence().length() == 50) snapshot.emplace(cache::Snapshot::take(g.sequence()));
                      }),
                  reply);
        EXPECT_GT(first.draft_counts.accepted, 0);
        ASSERT_TRUE(snapshot.has_value());
        EXPECT_EQ(snapshot->restore().mtp_length(), 49) << "a snapshot holds every slot whose next token was known";
        Generation second(snapshot->restore(), ids(70, 5), with, nullptr);
        attach(*drafts, second);
        if (is_resumed) {
            EXPECT_EQ(run(second), reply);
        }
        cache::Sequence& sequence = is_resumed ? second.sequence() : first.sequence();
        ASSERT_EQ(sequence.length(), static_cast<int32_t>(text.size()));
        EXPECT_EQ(sequence.mtp_length(), sequence.length() - 1) << "the end of a reply is settled";
        MtpDrafter::Rows rows;
        head->open(rows, sequence);
        EXPECT_EQ(candidates_after(*head, sequence, root, rows), seen[0]);
    }
}

TEST_F(MergedDraftsTest, ASequenceWithoutSlotsIsDecodedWithoutTheHead) {
    GenerationParams with = params(0.0f);
    with.boundaries = {40};
    std::optional<cache::Snapshot> snapshot;
    Generation plain = make(ids(70, 5), with);
    const auto expected = run(plain, 96, [&](Generation& g) { snapshot.emplace(cache::Snapshot::take(g.sequence())); });
    ASSERT_TRUE(snapshot.has_value());
    const auto drafts = drafting("mtp:steps=3,topk=1");
    Generation drafted(snapshot->restore(), ids(70, 5), with, nullptr);
    attach(*drafts, drafted);
    EXPECT_EQ(run(drafted), expected);
    EXPECT_EQ(drafted.draft_counts.drafted, 0);
}

TEST_F(MergedDraftsTest, AStepWithAllSourcesAllocatesNothing) {
    for (const char* draft : {"auto", "mtp:steps=8,topk=2,nodes=16"}) {
        const auto drafts = drafting(draft);
        Generation generation = make(ids(150, 4), params(0.0f));
        attach(*drafts, generation);
        const int64_t n = allocations_of(generation);
        if (n < 0) GTEST_SKIP() << "allocations are not counted under a sanitizer";
        EXPECT_EQ(n, 0) << draft;
    }
}

}  // namespace
}  // namespace espalier::decode
