// The store against real directories: round trips, sharing, caps, tenants.
#include <thread>

#include "cache/disk_store_fixture.h"

namespace espalier::cache {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(DiskStoreTest, GivesBackTheSameBytesAfterARestartAtAnyLength) {
    for (const int32_t length : {1, 63, 64, 65, 66, 127, 128, 129, 200, 700}) {
        SCOPED_TRACE(length);
        const auto tokens = tokens_of(length + 1, length);
        keep(*open(), std::span(tokens).first(static_cast<size_t>(length)));
        auto store = open();
        EXPECT_EQ(store->find_longest(tokens, {}), length);
        EXPECT_EQ(restored(*store, tokens), length);
    }
    EXPECT_THAT(warnings_, IsEmpty());
    expect_pools_free();
}

TEST_F(DiskStoreTest, RestoresTheMtpLengthAndContinues) {
    const auto tokens = tokens_of(400, 5);
    DiskStore::Options durable = options();
    durable.durability = Durability::power_cut;
    keep(*open(durable), std::span(tokens).first(200));
    auto store = open();
    auto result = store->restore_longest(tokens, {}, kContext);
    ASSERT_TRUE(result && *result);
    Sequence& sequence = (*result)->sequence;
    EXPECT_FALSE((*result)->is_from_memory);
    EXPECT_EQ(sequence.mtp_length(), 199);
    append(sequence, std::span(tokens).subspan(200));
    expect_right(sequence);
}

TEST_F(DiskStoreTest, ServesFromMemoryUntilCollected) {
    auto store = open();
    const auto tokens = tokens_of(301, 1);
    EXPECT_EQ(store->keep(timeline(memory_, std::span(tokens).first(300)), {}), DiskStore::Kept::queued);
    EXPECT_EQ(store->find_longest(tokens, {}), 300);
    {
        auto result = store->restore_longest(tokens, {}, kContext);
        ASSERT_TRUE(result && *result);
        EXPECT_TRUE((*result)->is_from_memory);
        expect_right((*result)->sequence);
    }
    EXPECT_EQ(store->gauges().writes_pending, 1);
    store->flush();
    expect_pools_free();
    EXPECT_EQ(store->gauges().writes_pending, 0);
    EXPECT_EQ(store->gauges().writes_finished, 1);
    EXPECT_EQ(restored(*store, tokens), 300);
}

TEST_F(DiskStoreTest, WhatWaitsGrowsToTheContextAskedFor) {
    auto store = open();
    const auto tokens = tokens_of(300, 1);
    EXPECT_EQ(store->keep(timeline(memory_, std::span(tokens).first(200)).fork(200), {}), DiskStore::Kept::queued);
    auto result = store->restore_longest(tokens, {}, kContext);
    ASSERT_TRUE(result && *result);
    EXPECT_TRUE((*result)->is_from_memory);
    append((*result)->sequence, std::span(tokens).subspan(200));
    expect_right((*result)->sequence);
}

TEST_F(DiskStoreTest, FindsTheLongestPrefixOfTheSameKey) {
    auto store = open();
    const auto tokens = tokens_of(500, 2);
    keep(*store, std::span(tokens).first(100), {"alice", ""});
    keep(*store, std::span(tokens).first(300), {"alice", ""});
    keep(*store, std::span(tokens).first(400), {"bob", ""});
    keep(*store, std::span(tokens).first(450), {"alice", "her salt"});
    for (int round = 0; round < 2; ++round) {
        EXPECT_EQ(store->find_longest(tokens, {"alice", ""}), 300);
        EXPECT_EQ(store->find_longest(std::span(tokens).first(301), {"alice", ""}), 300);
        EXPECT_EQ(store->find_longest(std::span(tokens).first(300), {"alice", ""}), 300);  // the whole prompt
        EXPECT_EQ(store->find_longest(std::span(tokens).first(299), {"alice", ""}), 100);
        EXPECT_EQ(store->find_longest(tokens, {"alice", "her salt"}), 450);
        EXPECT_EQ(store->find_longest(tokens, {"aliceher salt", ""}), 0);
        EXPECT_EQ(store->find_longest(tokens, {"bob", ""}), 400);
        EXPECT_EQ(store->find_longest(tokens, {}), 0);
        EXPECT_EQ(store->find_longest(tokens, {"carol", ""}), 0);
        auto other = tokens;
        other[250] += 1;
        EXPECT_EQ(restored(*store, other, {"alice", ""}), 100);
        other[50] += 1;
        EXPECT_EQ(store->find_longest(other, {"alice", ""}), 0);
        EXPECT_EQ(store->find_longest({}, {"alice", ""}), 0);
        EXPECT_TRUE(store->has(std::span(tokens).first(300), {"alice", ""}));
        EXPECT_FALSE(store->has(std::span(tokens).first(299), {"alice", ""}));
        EXPECT_FALSE(store->has(std::span(tokens).first(300), {"bob", ""}));
        store.reset();
        store = open();
    }
}

TEST_F(DiskStoreTest, KeysAreNotReadableOnDisk) {
    keep(*open(), tokens_of(100, 2), {"sk-secret-key", "secret-salt"});
    for (const auto& item : fs::directory_iterator(directory_)) {
        std::ifstream in(item.path(), std::ios::binary);
        const std::string bytes((std::istreambuf_iterator<char>(in)), {});
        EXPECT_EQ(bytes.find("secret-"), std::string::npos) << item.path();
        struct stat info {};
        ASSERT_EQ(::stat(item.path().c_str(), &info), 0);
        EXPECT_EQ(info.st_mode & 0777, 0600u) << item.path();
    }
    struct stat info {};
    ASSERT_EQ(::stat(directory_.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(DiskStoreTest, IgnoresEntriesOfAnyOtherIdentityAndSaysSo) {
    const auto tokens = tokens_of(200, 3);
    keep(*open(), std::span(tokens).first(150));
    using Word = std::string DiskIdentity::*;
    const std::pair<Word, const char*> words[] = {{&DiskIdentity::model_hash, "model demo (m1), here demo (other)"},
                                                  {&DiskIdentity::template_hash, "chat template t1, here other"},
                                                  {&DiskIdentity::acts, "activations a8, here other"},
                                                  {&DiskIdentity::kv_type, "keys and values bf16, here other"},
                                                  {&DiskIdentity::kernels, "kernels avx2-1, here other"}};
    for (const auto& [word, message] : words) {
        infos_.clear();
        DiskStore::Options changed = options();
        changed.identity.*word = "other";
        auto store = open(changed);
        EXPECT_EQ(store->find_longest(tokens, {}), 0);
        EXPECT_EQ(store->gauges().entries_ignored, 1);
        EXPECT_EQ(store->gauges().entries, 0);
        EXPECT_THAT(infos_, ElementsAre(AllOf(HasSubstr("1 stored snapshots"), HasSubstr(message))));
    }
    DiskStore::Options renamed = options();
    renamed.identity.model = "the same weights under another name";
    EXPECT_EQ(open(renamed)->find_longest(tokens, {}), 150);
    EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(DiskStoreTest, WritesThePagesOfAHundredTurnsOnce) {
    auto store = open();
    Sequence sequence = *Sequence::create(memory_, kContext);
    std::mt19937 random(7);
    std::vector<TokenId> all;
    for (int turn = 0; turn < 100; ++turn) {
        // What the engine does: the prompt continues at a stable boundary, and only that is kept.
        const auto added = tokens_of(20 + static_cast<int32_t>(random() % 60), turn + 100);
        all = joined(all, added);
        append(sequence, added);
        EXPECT_EQ(store->keep(sequence.fork(), {}), DiskStore::Kept::queued);
        if (turn % 3 == 2) store->flush();
        else
            while (store->gauges().writes_pending > 0 && store->collect_finished() == 0) std::this_thread::yield();
    }
    store->flush();
    const DiskStore::Gauges gauges = store->gauges();
    const auto page_bytes = static_cast<int64_t>(memory_.shape().page_bytes());
    EXPECT_EQ(gauges.writes_finished, 100);
    EXPECT_LE(gauges.page_bytes_written, static_cast<int64_t>(all.size()) / kPageTokens * page_bytes);
    EXPECT_EQ(files(".pages").size(), 1u);
    EXPECT_EQ(static_cast<int32_t>(files(".state").size()), options().states_per_conversation_max);
    EXPECT_LE(static_cast<int64_t>(fs::file_size(files(".pages").front())), gauges.page_bytes_written + 4096);
    EXPECT_EQ(restored(*store, joined(all, {1})), sequence.length());
}

TEST_F(DiskStoreTest, BranchesShareTheirPagesButNotWhatDependsOnTheNextToken) {
    auto store = open();
    const auto stem = tokens_of(320, 4);
    std::vector<std::vector<TokenId>> ends;
    Sequence first = timeline(memory_, stem);
    for (int branch = 0; branch < 4; ++branch) {
        Sequence sequence = first.fork();  // 319 MTP slots: the fifth page is not final, it depends on what follows
        append(sequence, tokens_of(100, 50 + branch));
        ends.emplace_back(sequence.tokens().begin(), sequence.tokens().end());
        EXPECT_EQ(store->keep(sequence.fork(), {}), DiskStore::Kept::queued);
        store->flush();
    }
    EXPECT_EQ(files(".pages").size(), 1u);
    const auto page_bytes = static_cast<int64_t>(memory_.shape().page_bytes());
    // 4 pages of the stem, then per branch the page at the fork and the next full one.
    EXPECT_EQ(store->gauges().page_bytes_written, (4 + 4 * 2) * page_bytes);
    for (int round = 0; round < 2; ++round) {
        for (const auto& end : ends) EXPECT_EQ(restored(*store, joined(end, {1})), 420);
        store.reset();
        store = open();
    }
}

TEST_F(DiskStoreTest, WritesAPageAgainOnlyWhenItsMtpSlotsCome) {
    auto store = open();
    const auto tokens = tokens_of(300, 8);
    Sequence sequence = *Sequence::create(memory_, kContext);
    append(sequence, std::span(tokens).first(200), 200);  // no MTP slot yet
    EXPECT_EQ(store->keep(sequence.fork(), {}), DiskStore::Kept::queued);
    append(sequence, std::span(tokens).subspan(200), 1);  // all of them
    EXPECT_EQ(store->keep(sequence.fork(), {}), DiskStore::Kept::queued);
    store->flush();
    const auto page_bytes = static_cast<int64_t>(memory_.shape().page_bytes());
    EXPECT_EQ(store->gauges().page_bytes_written, (3 + 4) * page_bytes);
    EXPECT_EQ(restored(*store, joined(tokens, {1})), 300);
    store.reset();
    store = open();
    EXPECT_EQ(restored(*store, std::span(tokens).first(299)), 200);
    EXPECT_EQ(restored(*store, joined(tokens, {1})), 300);
    // With fewer slots wanted the stored page will do.
    Sequence bare = *Sequence::create(memory_, kContext);
    append(bare, std::span(tokens).first(264), 264);
    EXPECT_EQ(store->keep(bare.fork(), {}), DiskStore::Kept::queued);
    store->flush();
    EXPECT_EQ(store->gauges().page_bytes_written, 0);
}

TEST_F(DiskStoreTest, UnrelatedConversationsHaveTheirOwnFiles) {
    auto store = open();
    const auto head = tokens_of(100, 1);
    const auto a = joined(head, tokens_of(600, 2));
    const auto b = joined(head, tokens_of(600, 3));
    keep(*store, a);
    keep(*store, b);
    EXPECT_EQ(files(".pages").size(), 2u);
    EXPECT_EQ(store->gauges().conversations, 2);
    EXPECT_EQ(restored(*store, joined(a, {1})), 700);
    EXPECT_EQ(restored(*store, joined(b, {1})), 700);
}

TEST_F(DiskStoreTest, KeepsTheCapAndDropsWhatWasUnusedForLongest) {
    auto store = open();
    const auto a = tokens_of(640, 1);
    keep(*store, a);
    const int64_t one = store->gauges().bytes;
    store.reset();
    DiskStore::Options capped = options();
    capped.bytes_max = one * 7 / 2;
    store = open(capped);
    const auto b = tokens_of(640, 2);
    const auto c = tokens_of(640, 3);
    const auto d = tokens_of(640, 4);
    keep(*store, b);
    keep(*store, c);
    EXPECT_EQ(restored(*store, joined(a, {1})), 640);  // used: b is the oldest now
    keep(*store, d);
    EXPECT_LE(store->gauges().bytes, capped.bytes_max);
    EXPECT_LE(disk_bytes(), capped.bytes_max + 32768);
    EXPECT_EQ(store->find_longest(joined(a, {1}), {}), 640);
    EXPECT_EQ(store->find_longest(joined(b, {1}), {}), 0);
    EXPECT_EQ(files(".pages").size(), 3u);
    // Also at the start, with a smaller cap.
    store.reset();
    capped.bytes_max = one * 3 / 2;
    store = open(capped);
    EXPECT_LE(disk_bytes(), capped.bytes_max + 32768);
    EXPECT_EQ(store->find_longest(joined(d, {1}), {}), 640);
    EXPECT_EQ(store->gauges().entries, 1);
    EXPECT_EQ(store->keep(timeline(memory_, tokens_of(2000, 5)), {}), DiskStore::Kept::too_large);
    EXPECT_EQ(restored(*store, joined(d, {1})), 640);
}

// A hit at the end of a conversation counts for where its question was asked, too.
TEST_F(DiskStoreTest, WhatIsUsedKeepsWhatItBeginsWith) {
    auto store = open();
    const auto a = tokens_of(640, 1);
    const auto b = tokens_of(640, 2);
    keep(*store, std::span(a).first(200));
    keep(*store, a);
    keep(*store, b);
    DiskStore::Options capped = options();
    capped.bytes_max = store->gauges().bytes;
    store.reset();
    for (const bool is_written : {false, true}) {
        store = open(capped);
        // Read, or handed over again as what goes on from it is.
        if (is_written) keep(*store, joined(a, {1}));
        else EXPECT_EQ(restored(*store, a), 640);
        keep(*store, tokens_of(640, is_written ? 4 : 3));
        EXPECT_TRUE(store->has(std::span(a).first(200), {}));
        EXPECT_TRUE(store->has(a, {}));
        EXPECT_FALSE(store->has(is_written ? tokens_of(640, 3) : b, {}));
        store.reset();
    }
}

TEST_F(DiskStoreTest, GivesSpaceBackInsideAConversation) {
    DiskStore::Options few = options();
    few.bytes_max = 2 * kMiB;
    auto store = open(few);
    // Retries of the end of one conversation: the tails of old ones go, the stem stays.
    const auto stem = tokens_of(640, 1);
    for (int branch = 0; branch < 30; ++branch) keep(*store, joined(stem, tokens_of(300, 100 + branch)));
    EXPECT_LE(store->gauges().bytes, few.bytes_max);
    EXPECT_LE(disk_bytes(), few.bytes_max + 65536);
    EXPECT_EQ(files(".pages").size(), 1u);
    EXPECT_EQ(restored(*store, joined(joined(stem, tokens_of(300, 129)), {1})), 940);
    EXPECT_EQ(restored(*store, joined(joined(stem, tokens_of(300, 128)), {1})), 940);
    EXPECT_EQ(store->find_longest(joined(joined(stem, tokens_of(300, 100)), {1}), {}), 0);
}

TEST_F(DiskStoreTest, OneTenantCannotPushAnotherBelowItsShare) {
    auto store = open();
    keep(*store, tokens_of(640, 1), {"quiet", ""});
    const int64_t one = store->gauges().bytes;
    store.reset();
    DiskStore::Options capped = options();
    capped.bytes_max = one * 4 + one / 2;
    store = open(capped);
    for (int i = 0; i < 10; ++i) keep(*store, tokens_of(640, 10 + i), {"loud", std::to_string(i)});
    EXPECT_LE(store->gauges().bytes, capped.bytes_max);
    EXPECT_EQ(restored(*store, joined(tokens_of(640, 1), {1}), {"quiet", ""}), 640);
    EXPECT_EQ(restored(*store, joined(tokens_of(640, 19), {1}), {"loud", "9"}), 640);
}

TEST_F(DiskStoreTest, ThinsTheStatesOfALongConversationAndKeepsJunctions) {
    DiskStore::Options few = options();
    few.states_per_conversation_max = 6;
    auto store = open(few);
    const auto all = tokens_of(2000, 9);
    keep(*store, std::span(all).first(200));
    keep(*store, std::span(all).first(500));
    keep(*store, joined({all.begin(), all.begin() + 520}, tokens_of(60, 1)));  // leaves after 500
    for (size_t end = 600; end <= 2000; end += 100) keep(*store, std::span(all).first(end));
    const auto has = [&](size_t length) {
        return store->find_longest(std::span(all).first(std::min(length + 1, all.size())), {}) == static_cast<int32_t>(length);
    };
    EXPECT_EQ(store->gauges().entries, few.states_per_conversation_max + 1);
    EXPECT_TRUE(has(200));
    EXPECT_TRUE(has(500));
    EXPECT_TRUE(has(1900));
    EXPECT_EQ(restored(*store, joined(all, {1})), 2000);
}

TEST_F(DiskStoreTest, ThinningKeepsTheQuestionOfManyToolTurns) {
    auto store = open();
    const auto all = tokens_of(1900, 9);
    const auto keep_at = [&](size_t end, PointKind kind) {
        EXPECT_EQ(store->keep(timeline(memory_, std::span(all).first(end)), {}, kind), DiskStore::Kept::queued);
        store->flush();
    };
    keep_at(100, PointKind::message_end);
    keep_at(200, PointKind::user_boundary);
    keep_at(300, PointKind::prompt_end);
    keep_at(600, PointKind::user_boundary);
    for (size_t turn = 1; turn <= 60; ++turn) keep_at(600 + turn * 20, PointKind::tool_boundary);
    EXPECT_EQ(store->gauges().entries, options().states_per_conversation_max);
    for (int round = 0; round < 2; ++round) {
        EXPECT_TRUE(store->has(std::span(all).first(100), {}));
        EXPECT_TRUE(store->has(std::span(all).first(200), {}));
        EXPECT_TRUE(store->has(std::span(all).first(600), {}));
        store.reset();
        store = open();
    }
}

TEST_F(DiskStoreTest, BoundsWhatWaitsAndGivesItUpOnRequest) {
    DiskStore::Options bounded = options();
    bounded.writes_pending_max = 2;
    auto store = open(bounded);
    const auto a = tokens_of(200, 1);
    EXPECT_EQ(store->keep(timeline(memory_, a), {}), DiskStore::Kept::queued);
    EXPECT_EQ(store->keep(timeline(memory_, a), {}), DiskStore::Kept::already_there);
    EXPECT_EQ(store->keep(timeline(memory_, tokens_of(200, 2)), {}), DiskStore::Kept::queued);
    EXPECT_EQ(store->keep(timeline(memory_, tokens_of(200, 3)), {}), DiskStore::Kept::queue_full);
    const int32_t dropped = store->drop_pending();
    store->flush();
    EXPECT_EQ(store->gauges().writes_finished, 2 - dropped);
    EXPECT_EQ(store->gauges().entries, 2 - dropped);
    expect_pools_free();
    keep(*store, tokens_of(200, 3));
    EXPECT_EQ(restored(*store, tokens_of(201, 3)), 200);
}

TEST_F(DiskStoreTest, SaysWhenThePoolsHaveNoRoom) {
    const auto tokens = tokens_of(1001, 1);
    auto store = open();
    keep(*store, std::span(tokens).first(1000));
    {
        const Sequence hog = timeline(memory_, tokens_of((512 - 15) * kPageTokens > kContext ? kContext : 100, 2));
        Sequence hogs[] = {timeline(memory_, tokens_of(kContext, 3)), timeline(memory_, tokens_of(kContext, 4)),
                           timeline(memory_, tokens_of(kContext - 900, 5))};
        ASSERT_LT(memory_.pages().n_free(), 16);
        auto result = store->restore_longest(tokens, {}, kContext);
        ASSERT_FALSE(result.has_value());
        EXPECT_EQ(result.error().code, ErrorCode::exhausted);
    }
    EXPECT_EQ(restored(*store, tokens), 1000);
    auto small = store->restore_longest(tokens, {}, 500);
    ASSERT_FALSE(small.has_value());
    EXPECT_THAT(small.error().message, HasSubstr("exceeds the context of 500"));
}

TEST_F(DiskStoreTest, OneProcessAtATime) {
    auto store = open();
    auto second = DiskStore::open(options(), memory_);
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().code, ErrorCode::exhausted);
    EXPECT_THAT(second.error().message, AllOf(HasSubstr(directory_), HasSubstr("in use by another process")));
    store.reset();
    EXPECT_NE(open(), nullptr);
}

TEST_F(DiskStoreTest, RefusesWhatIsNoDirectory) {
    std::ofstream(directory_) << "a file";
    auto store = DiskStore::open(options(), memory_);
    ASSERT_FALSE(store.has_value());
    EXPECT_THAT(store.error().message, HasSubstr("not a directory"));
    DiskStore::Options nowhere = options();
    nowhere.directory = "/proc/espalier/conversations";
    EXPECT_FALSE(DiskStore::open(nowhere, memory_).has_value());
}

// Random timelines, restarts, caps, tenants: what comes back is right, and what was just kept is there.
TEST_F(DiskStoreTest, RandomUseNeverGivesAWrongByte) {
    std::mt19937 random(12345);
    DiskStore::Options random_options = options();
    random_options.bytes_max = 4 * kMiB;
    random_options.states_per_conversation_max = 4;
    auto store = open(random_options);
    std::vector<std::vector<TokenId>> known = {tokens_of(100, 1)};
    int32_t n_hits = 0;
    for (int step = 0; step < 400; ++step) {
        const CacheKey key{random() % 4 == 0 ? "b" : "a", ""};
        const auto& base = known[random() % known.size()];
        const auto cut = static_cast<std::ptrdiff_t>(random() % 3 == 0 ? 1 + random() % base.size() : base.size());
        auto tokens = joined({base.begin(), base.begin() + cut}, tokens_of(static_cast<int32_t>(random() % 200), step));
        if (tokens.size() > 1500) tokens.resize(1500);
        Sequence sequence = *Sequence::create(memory_, kContext);
        if (auto hit = store->restore_longest(tokens, key, kContext); hit && *hit) {
            sequence = std::move((*hit)->sequence);
            expect_right(sequence);
            ++n_hits;
        }
        const auto rest = std::span(tokens).subspan(static_cast<size_t>(sequence.length()));
        if (!rest.empty()) append(sequence, rest, random() % 3 == 0 ? 2 : 1);
        const auto kept = store->keep(std::move(sequence), key);
        EXPECT_TRUE(kept == DiskStore::Kept::queued || kept == DiskStore::Kept::already_there ||
                    kept == DiskStore::Kept::queue_full);
        if (kept == DiskStore::Kept::queued) {
            EXPECT_EQ(store->find_longest(joined(tokens, {1}), key), static_cast<int32_t>(tokens.size()));
        }
        known.push_back(tokens);
        if (known.size() > 20) known.erase(known.begin());
        if (random() % 7 == 0) store->drop_pending();
        if (random() % 3 == 0) store->collect_finished();
        if (random() % 5 == 0) store->flush();
        EXPECT_LE(store->gauges().bytes, random_options.bytes_max);
        if (random() % 15 == 0) {
            store.reset();
            store = open(random_options);
        }
    }
    EXPECT_GT(n_hits, 100);
    EXPECT_THAT(warnings_, IsEmpty());
    store.reset();
    expect_pools_free();
}

}  // namespace
}  // namespace espalier::cache
