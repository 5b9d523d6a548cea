// The laws as tests, on a small reference checkpoint: the same token has the same bits however it is computed.
#include "model/forward.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "model/mtp.h"
#include "model/reference_model.h"

namespace espalier::model {
namespace {

using Logits = std::vector<float>;

// A model with memory and a forward pass; cheap enough to build several.
struct Engine {
    explicit Engine(const std::string& name, int n_threads = 2, kernels::Isa isa = kernels::available_isas().back(),
                    kernels::KvType kv = kernels::KvType::f32)
        : pool(n_threads) {
        LoadOptions options;
        options.isa = isa;
        options.kv = kv;
        model = reference_model(name, options, pool);
        memory = std::make_unique<cache::Memory>(std::move(*cache::Memory::create(model->state_shape(), {64, 16})));
        PassLimits limits;
        limits.rows_max = 256;
        limits.segments_max = 3;
        limits.context_tokens = 512;
        forward = std::move(*Forward::create(*model, *memory, pool, limits));
    }

    cache::Sequence fresh() { return std::move(*cache::Sequence::create(*memory, 512)); }
    size_t vocab() const { return static_cast<size_t>(model->config().vocab); }

    // Appends ids in one pass and returns the logits of all of them.
    Logits append(cache::Sequence& sequence, std::span<const TokenId> ids) {
        const auto n = static_cast<int32_t>(ids.size());
        const Segment segment{&sequence, ids, {}, n};
        EXPECT_TRUE(forward->run({&segment, 1}).has_value());
        Logits logits(ids.size() * vocab());
        forward->logits(0, 0, n, logits.data());
        forward->commit_spine(0);
        return logits;
    }

    Logits append_in(cache::Sequence& sequence, std::span<const TokenId> ids, const std::vector<size_t>& chunks) {
        Logits all;
        size_t begin = 0;
        for (size_t i = 0; begin < ids.size(); ++i) {
            const size_t n = std::min(chunks[std::min(i, chunks.size() - 1)], ids.size() - begin);
            const Logits part = append(sequence, ids.subspan(begin, n));
            all.insert(all.end(), part.begin(), part.end());
            begin += n;
        }
        return all;
    }

    ThreadPool pool;
    std::unique_ptr<const Model> model;
    std::unique_ptr<cache::Memory> memory;
    std::unique_ptr<Forward> forward;
};

std::vector<TokenId> random_ids(size_t n, size_t vocab, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<TokenId> ids(n);
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % vocab);
    return ids;
}

class Laws : public testing::TestWithParam<std::string> {};

TEST_P(Laws, ChunksDoNotMatter) {
    Engine engine(GetParam());
    const auto ids = random_ids(150, engine.vocab(), 1);
    auto sequence = engine.fresh();
    const Logits whole = engine.append(sequence, ids);
    for (const std::vector<size_t>& chunks : {std::vector<size_t>{1}, {7, 1, 64}, {63, 65}, {149, 1}, {64}}) {
        auto other = engine.fresh();
        EXPECT_EQ(engine.append_in(other, ids, chunks), whole) << "chunks from " << chunks[0];
    }
}

TEST_P(Laws, ThreadsDoNotMatter) {
    Engine one(GetParam(), 1);
    const auto ids = random_ids(80, one.vocab(), 2);
    auto sequence = one.fresh();
    const Logits expected = one.append(sequence, ids);
    for (const int n_threads : {2, 3, 8}) {
        Engine many(GetParam(), n_threads);
        auto other = many.fresh();
        EXPECT_EQ(many.append(other, ids), expected) << n_threads;
    }
}

TEST_P(Laws, EveryTierGivesTheSameBits) {
    const auto isas = kernels::available_isas();
    Engine best(GetParam(), 2, isas.back(), kernels::KvType::bf16);
    const auto ids = random_ids(70, best.vocab(), 3);
    auto sequence = best.fresh();
    const Logits expected = best.append(sequence, ids);
    for (const kernels::Isa isa : isas) {
        Engine other(GetParam(), 2, isa, kernels::KvType::bf16);
        auto own = other.fresh();
        EXPECT_EQ(other.append(own, ids), expected) << kernels::to_string(isa);
    }
}

// A tree with several leaves, deep enough to cross a block border from any offset in it.
TEST_P(Laws, ATreeIsItsSeparateChainsAtEveryOffsetInABlock) {
    Engine engine(GetParam());
    const auto ids = random_ids(130, engine.vocab(), 4);
    const std::vector<int32_t> parents = {-1, 0, 1, 1, 2, 3, 4, 0, 7, 5};
    const std::vector<std::vector<int32_t>> paths = {{0, 1, 2, 4, 6}, {0, 1, 3, 5, 9}, {0, 7, 8}};
    const auto tree_ids = random_ids(parents.size(), engine.vocab(), 5);
    auto base = engine.fresh();
    engine.append(base, std::span(ids).first(59));
    for (size_t length = 59; length < 129; ++length) {
        const Segment segment{&base, tree_ids, parents, 1};
        ASSERT_TRUE(engine.forward->run({&segment, 1}).has_value());
        Logits tree(tree_ids.size() * engine.vocab());
        engine.forward->logits(0, 0, static_cast<int32_t>(tree_ids.size()), tree.data());
        for (const auto& path : paths) {
            std::vector<TokenId> chain_ids;
            for (const int32_t node : path) chain_ids.push_back(tree_ids[static_cast<size_t>(node)]);
            cache::Sequence chain = base.fork();
            const Logits expected = engine.append(chain, chain_ids);
            for (size_t i = 0; i < path.size(); ++i) {
                const auto* got = tree.data() + static_cast<size_t>(path[i]) * engine.vocab();
                ASSERT_TRUE(std::equal(got, got + engine.vocab(), expected.data() + i * engine.vocab()))
                    << "length " << length << " node " << path[i];
            }
        }
        engine.append(base, std::span(ids).subspan(length, 1));
    }
}

TEST_P(Laws, CommittingAPathIsHavingDecodedIt) {
    Engine engine(GetParam());
    const auto prompt = random_ids(61, engine.vocab(), 6);
    const std::vector<int32_t> parents = {-1, 0, 1, 2, 2, 4, 1, 5};
    const auto tree_ids = random_ids(parents.size(), engine.vocab(), 7);
    const auto then = random_ids(5, engine.vocab(), 8);
    for (const std::vector<int32_t>& path : {std::vector<int32_t>{}, {1}, {1, 6}, {1, 2, 4, 5, 7}, {1, 2, 3}}) {
        auto sequence = engine.fresh();
        engine.append(sequence, prompt);
        const Segment segment{&sequence, tree_ids, parents, 1};
        ASSERT_TRUE(engine.forward->run({&segment, 1}).has_value());
        engine.forward->commit_spine(0);
        const cache::Snapshot at_spine = cache::Snapshot::take(sequence);
        ASSERT_TRUE(engine.forward->commit_path(0, path).has_value());
        auto plain = engine.fresh();
        engine.append(plain, prompt);
        std::vector<TokenId> decoded = {tree_ids[0]};
        for (const int32_t node : path) decoded.push_back(tree_ids[static_cast<size_t>(node)]);
        engine.append_in(plain, decoded, {1});
        EXPECT_TRUE(std::ranges::equal(sequence.tokens(), plain.tokens()));
        EXPECT_EQ(engine.append_in(sequence, then, {1}), engine.append_in(plain, then, {2}));
        // The snapshot between the two commits did not move.
        cache::Sequence restored = at_spine.restore();
        auto other = engine.fresh();
        engine.append(other, prompt);
        engine.append(other, std::span(decoded).first(1));
        EXPECT_EQ(engine.append(restored, then), engine.append(other, then));
    }
}

TEST_P(Laws, SnapshotRestoreAndForkAtRandomPointsAreInvisible) {
    Engine engine(GetParam());
    const auto ids = random_ids(200, engine.vocab(), 9);
    auto straight = engine.fresh();
    const Logits expected = engine.append(straight, ids);
    std::mt19937 random(10);
    for (int round = 0; round < 6; ++round) {
        auto sequence = engine.fresh();
        std::vector<cache::Snapshot> snapshots;
        Logits got;
        while (sequence.length() < 200) {
            const size_t left = 200 - static_cast<size_t>(sequence.length());
            const size_t n = 1 + random() % std::min<size_t>(left, 40);
            const Logits part = engine.append(sequence, std::span(ids).subspan(200 - left, n));
            got.insert(got.end(), part.begin(), part.end());
            // A detour on a fork writes the same positions with other content.
            cache::Sequence fork = sequence.fork();
            if (fork.length() < 190) engine.append(fork, random_ids(9, engine.vocab(), static_cast<uint32_t>(random())));
            snapshots.push_back(cache::Snapshot::take(sequence));
            if (snapshots.size() > 3) snapshots.erase(snapshots.begin());
            sequence = snapshots.back().restore();
        }
        EXPECT_EQ(got, expected) << round;
        const cache::Snapshot& earlier = snapshots.front();
        cache::Sequence again = earlier.restore();
        const auto from = static_cast<size_t>(again.length());
        const Logits rest = engine.append(again, std::span(ids).subspan(from));
        EXPECT_TRUE(std::equal(rest.begin(), rest.end(), expected.begin() + static_cast<std::ptrdiff_t>(from * engine.vocab())));
    }
}

TEST_P(Laws, SequencesInOnePassDoNotSeeEachOther) {
    Engine engine(GetParam());
    const auto a = random_ids(70, engine.vocab(), 11);
    const auto b = random_ids(33, engine.vocab(), 12);
    const auto c = random_ids(6, engine.vocab(), 13);
    const std::vector<int32_t> tree = {-1, 0, 0, 1, 2, 4};
    auto alone = [&](std::span<const TokenId> ids, std::span<const int32_t> parents, int32_t spine) {
        auto sequence = engine.fresh();
        const Segment segment{&sequence, ids, parents, spine};
        EXPECT_TRUE(engine.forward->run({&segment, 1}).has_value());
        Logits logits(ids.size() * engine.vocab());
        engine.forward->logits(0, 0, static_cast<int32_t>(ids.size()), logits.data());
        return logits;
    };
    const Logits expected[] = {alone(a, {}, 70), alone(b, {}, 33), alone(c, tree, 1)};
    cache::Sequence sequences[] = {engine.fresh(), engine.fresh(), engine.fresh()};
    const Segment segments[] = {{&sequences[0], a, {}, 70}, {&sequences[1], b, {}, 33}, {&sequences[2], c, tree, 1}};
    ASSERT_TRUE(engine.forward->run(segments).has_value());
    for (int32_t s = 0; s < 3; ++s) {
        Logits got(segments[s].tokens.size() * engine.vocab());
        engine.forward->logits(s, 0, static_cast<int32_t>(segments[s].tokens.size()), got.data());
        EXPECT_EQ(got, expected[s]) << s;
    }
}

TEST_P(Laws, APassWithoutCommitLeavesNoTrace) {
    Engine engine(GetParam());
    const auto ids = random_ids(40, engine.vocab(), 14);
    auto sequence = engine.fresh();
    engine.append(sequence, std::span(ids).first(20));
    const int32_t states = engine.memory->states().n_free();
    cache::Sequence reference = sequence.fork();
    const auto noise = random_ids(30, engine.vocab(), 15);
    const Segment segment{&sequence, noise, {}, 30};
    ASSERT_TRUE(engine.forward->run({&segment, 1}).has_value());
    EXPECT_EQ(engine.append(sequence, std::span(ids).subspan(20)), engine.append(reference, std::span(ids).subspan(20)));
    EXPECT_EQ(engine.memory->states().n_free(), states - 1) << "the fork's own state, nothing else";
}

TEST_P(Laws, MtpPrefillInPiecesIsMtpPrefill) {
    Engine engine(GetParam());
    auto head = std::move(*MtpHead::create(*engine.forward));
    const auto ids = random_ids(100, engine.vocab(), 16);
    auto sequence = engine.fresh();
    engine.append(sequence, std::span(ids).first(99));
    const auto hidden = static_cast<size_t>(engine.model->config().hidden);
    std::vector<float> rows;
    for (int32_t i = 0; i < 99; ++i) rows.insert(rows.end(), engine.forward->hidden(0, i), engine.forward->hidden(0, i) + hidden);
    const auto run = [&](const std::vector<size_t>& pieces) {
        cache::Sequence own = sequence.fork();
        Logits logits(99 * engine.vocab());
        size_t begin = 0;
        for (size_t i = 0; begin < 99; ++i) {
            const size_t n = std::min(pieces[std::min(i, pieces.size() - 1)], 99 - begin);
            head->start(own);
            EXPECT_TRUE(head->extend(std::span(ids).subspan(begin + 1, n), rows.data() + begin * hidden).has_value());
            head->logits(0, static_cast<int32_t>(n), logits.data() + begin * engine.vocab());
            EXPECT_TRUE(head->keep(static_cast<int32_t>(n)).has_value());
            begin += n;
        }
        return logits;
    };
    const Logits whole = run({99});
    EXPECT_EQ(run({1}), whole);
    EXPECT_EQ(run({40, 3, 64}), whole);
}

TEST_P(Laws, SomePanelsOfTheDraftHeadAreThoseOfAll) {
    Engine engine(GetParam());
    auto head = std::move(*MtpHead::create(*engine.forward));
    const auto ids = random_ids(12, engine.vocab(), 17);
    auto sequence = engine.fresh();
    engine.append(sequence, std::span(ids).first(11));
    head->start(sequence);
    ASSERT_TRUE(head->extend(std::span(ids).last(11), engine.forward->hidden(0, 0)).has_value());
    Logits whole(engine.vocab());
    head->logits(4, 1, whole.data());
    const auto n_panels = static_cast<int64_t>((engine.vocab() + kernels::kPanelRows - 1) / kernels::kPanelRows);
    const std::vector<std::vector<PanelRange>> cases = {
        {{0, n_panels}}, {{0, 1}}, {{n_panels - 1, n_panels}}, {{0, 5}, {6, 7}, {9, 30}, {n_panels - 2, n_panels}}, {}};
    for (const auto& ranges : cases) {
        Logits some(engine.vocab(), -7.0f);
        head->logits_of(4, ranges, some.data());
        Logits expected(engine.vocab(), -7.0f);
        for (const PanelRange& range : ranges) {
            const auto begin = static_cast<size_t>(range.begin * kernels::kPanelRows);
            const auto end = std::min(static_cast<size_t>(range.end * kernels::kPanelRows), engine.vocab());
            std::copy(whole.begin() + static_cast<ptrdiff_t>(begin), whole.begin() + static_cast<ptrdiff_t>(end),
                      expected.begin() + static_cast<ptrdiff_t>(begin));
        }
        EXPECT_EQ(some, expected) << ranges.size() << " ranges";
    }
}

INSTANTIATE_TEST_SUITE_P(Reference, Laws, testing::Values("tiny_a", "tiny_b"), [](const auto& test) { return test.param; });

TEST(Forward, ReportsExhaustionAndKeepsWhatWasCommitted) {
    Engine engine("tiny_a");
    auto small = std::move(*cache::Memory::create(engine.model->state_shape(), {1, 4}));
    PassLimits limits;
    limits.context_tokens = 512;
    auto forward = std::move(*Forward::create(*engine.model, small, engine.pool, limits));
    auto sequence = std::move(*cache::Sequence::create(small, 512));
    const auto ids = random_ids(80, engine.vocab(), 17);
    const Segment fits{&sequence, std::span(ids).first(60), {}, 60};
    ASSERT_TRUE(forward->run({&fits, 1}).has_value());
    forward->commit_spine(0);
    const Segment too_long{&sequence, std::span(ids).subspan(60), {}, 20};
    const Status status = forward->run({&too_long, 1});
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, ErrorCode::exhausted);
    EXPECT_EQ(sequence.length(), 60);
    const Segment short_one{&sequence, std::span(ids).subspan(60, 4), {}, 4};
    EXPECT_TRUE(forward->run({&short_one, 1}).has_value());
}

}  // namespace
}  // namespace espalier::model
