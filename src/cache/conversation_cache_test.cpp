#include "cache/conversation_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "cache/test_timeline.h"

namespace espalier::cache {
namespace {

class ConversationCacheTest : public ::testing::Test {
protected:
    ConversationCacheTest() : memory_(std::move(*Memory::create(testing::timeline_shape(), {64, 64}))) {
        std::string name = (std::filesystem::temp_directory_path() / "espalier_cache_XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
    }
    ~ConversationCacheTest() override {
        cache_.reset();
        std::filesystem::remove_all(folder_);
    }

    enum class Disk { none, there };
    void start(int32_t pages, Disk disk = Disk::none) {
        cache_.reset();
        ConversationCache::Options options;
        const int64_t content = pages * page_bytes() + 4 * state_bytes();
        options.bytes_max = content + index_bytes_max(content);
        options.snapshots_max = 24;
        options.clock = [this] { return now_; };
        if (disk == Disk::there) {
            DiskStore::Options store;
            store.directory = folder_ + "/store";
            store.identity.model_hash = "m";
            store.bytes_max = int64_t{64} << 20;
            store.durability = Durability::kill;
            auto opened = DiskStore::open(store, memory_);
            ASSERT_TRUE(opened.has_value()) << opened.error().message;
            options.store = *std::move(opened);
        }
        cache_ = std::make_unique<ConversationCache>(memory_, std::move(options));
        cache_->set_ms_per_token(100);
    }

    static std::vector<TokenId> ids(uint32_t seed, size_t n) {
        std::mt19937 random(seed);
        std::vector<TokenId> result(n);
        for (TokenId& id : result) id = static_cast<TokenId>(random() % 50);
        return result;
    }
    int64_t page_bytes() const { return static_cast<int64_t>(memory_.pages().slot_bytes()); }
    int64_t state_bytes() const { return static_cast<int64_t>(memory_.states().slot_bytes()); }

    // What the engine does with a prompt: the number of tokens computed.
    size_t ask(const std::vector<TokenId>& prompt, const CacheKey& key = {}) {
        ++now_;
        cache_->set_running(1);
        const auto match = cache_->match(key, prompt);
        std::optional<Sequence> sequence = cache_->read_back(key, prompt, match.cached, 2048);
        if (!sequence) {
            const auto now = cache_->match(key, prompt);
            EXPECT_TRUE(cache_->make_room(static_cast<int64_t>(prompt.size()) / kPageTokens + 2, key.owner, now.node));
            sequence =
                now.node != nullptr ? cache_->resume(key, prompt, *now.node, 2048) : std::move(*Sequence::create(memory_, 2048));
        }
        const auto begin = static_cast<size_t>(sequence->length());
        EXPECT_TRUE(testing::holds(*sequence, std::span(prompt).first(begin)) || begin == 0);
        testing::grow(*sequence, std::span(prompt).subspan(begin));
        if (begin < prompt.size()) cache_->keep(key, *sequence, PointKind::tool_boundary);
        sequence.reset();
        cache_->set_running(0);
        cache_->write_behind(ConversationCache::Moment::busy);
        return prompt.size() - begin;
    }

    std::string folder_;
    Memory memory_;
    std::unique_ptr<ConversationCache> cache_;
    int64_t now_ = 0;
};

TEST_F(ConversationCacheTest, MakesRoomAtTheCostOfTheOldest) {
    start(12);
    for (uint32_t i = 0; i < 6; ++i) EXPECT_EQ(ask(ids(i, 128)), 128u);
    EXPECT_LE(cache_->gauges().used_bytes, cache_->gauges().bytes_max);
    EXPECT_EQ(ask(ids(5, 128)), 0u);
    EXPECT_EQ(ask(ids(0, 128)), 128u) << "given up";
    EXPECT_GT(cache_->gauges().evictions, 0);
    EXPECT_FALSE(cache_->make_room(1000, "")) << "more than there is";
    EXPECT_EQ(cache_->gauges().tree.snapshots, 0) << "though everything was tried";
}

TEST_F(ConversationCacheTest, ThePrefixThatIsGoneOnFromIsSpared) {
    start(12);
    ask(ids(1, 300));
    const auto match = cache_->match({}, ids(1, 300));
    EXPECT_FALSE(cache_->make_room(11, "", match.node));
    EXPECT_EQ(cache_->match({}, ids(1, 300)).cached, 300);
}

TEST_F(ConversationCacheTest, MessagesOfALongPromptDoNotPushOutOtherConversations) {
    start(40);
    for (uint32_t i = 0; i < 5; ++i) ask(ids(i, 128));
    const auto prompt = ids(9, 1200);
    Sequence sequence = std::move(*Sequence::create(memory_, 2048));
    for (size_t end = 40; end <= prompt.size(); end += 40) {
        testing::grow(sequence, std::span(prompt).subspan(end - 40, 40));
        cache_->keep({}, sequence, PointKind::inner_message);
    }
    EXPECT_TRUE(cache_->keep({}, sequence, PointKind::tool_boundary));
    EXPECT_GT(cache_->gauges().evictions, 5) << "its own, of the same kind";
    for (uint32_t i = 0; i < 5; ++i) EXPECT_EQ(cache_->match({}, ids(i, 128)).cached, 128) << i;
}

TEST_F(ConversationCacheTest, AThinnedLadderLosesOnlyLadderPoints) {
    start(40);
    const auto prompt = ids(1, 900);
    Sequence sequence = std::move(*Sequence::create(memory_, 2048));
    for (const int32_t length : {100, 300, 500, 700, 800}) {
        testing::grow(sequence, std::span(prompt).subspan(static_cast<size_t>(sequence.length()),
                                                          static_cast<size_t>(length - sequence.length())));
        cache_->keep({}, sequence, length == 500 ? PointKind::tool_boundary : PointKind::ladder);
    }
    cache_->thin({}, prompt, std::vector<int32_t>{100, 300, 500, 700, 800});
    std::vector<int32_t> lengths;
    for (const PrefixTree::Node* node : cache_->tree().snapshots()) lengths.push_back(PrefixTree::length(*node));
    std::sort(lengths.begin(), lengths.end());
    EXPECT_EQ(lengths, (std::vector<int32_t>{100, 500, 700, 800}));
}

TEST_F(ConversationCacheTest, WhatWouldTakeLongIsWrittenAtOnceTheRestWhenIdle) {
    start(40, Disk::there);
    ask(ids(1, 300));  // 30 s
    EXPECT_FALSE(cache_->has_unwritten());
    cache_->set_ms_per_token(1);
    ask(ids(2, 300));
    EXPECT_TRUE(cache_->has_unwritten());
    cache_->write_behind(ConversationCache::Moment::idle);
    EXPECT_FALSE(cache_->has_unwritten());
    cache_->finish_writing(1000);
    EXPECT_EQ(cache_->gauges().store->writes_finished, 2);
}

// A request that was cancelled or failed says nothing at its end.
TEST_F(ConversationCacheTest, WhatWasKeptWaitsToBeWrittenHoweverTheRequestEnded) {
    start(40, Disk::there);
    cache_->set_ms_per_token(1);
    const auto prompt = ids(1, 300);
    Sequence sequence = std::move(*Sequence::create(memory_, 2048));
    for (const size_t end : {100, 200, 300}) {
        testing::grow(sequence, std::span(prompt).subspan(end - 100, 100));
        cache_->keep({}, sequence, PointKind::ladder);
        EXPECT_TRUE(cache_->has_unwritten());
    }
    cache_->finish_writing(10'000);
    EXPECT_EQ(cache_->gauges().store->writes_finished, 1) << "of a prefill that was broken off, where it ended";
    start(40, Disk::there);
    EXPECT_EQ(ask(prompt), 0u);
    ASSERT_EQ(cache_->tree().snapshots().size(), 1u);
    EXPECT_EQ(PrefixTree::kind(*cache_->tree().snapshots()[0]), PointKind::ladder) << "it comes back as what it was";
}

TEST_F(ConversationCacheTest, MemoryThatWaitsForTheDiskIsTakenBackWhenItIsNeeded) {
    start(24, Disk::there);
    for (uint32_t i = 0; i < 30; ++i) {
        EXPECT_EQ(ask(ids(i, 400)), 400u);
        ASSERT_LE(cache_->gauges().used_bytes, cache_->gauges().bytes_max);
    }
}

// A running request holds what is given up here; that is no reason to call writes back or to wait for them.
TEST_F(ConversationCacheTest, WritesThatHoldNothingBackAreLeftAlone) {
    start(24, Disk::there);
    cache_->set_ms_per_token(1);
    const auto prompt = ids(1, 400);
    ask(prompt);
    Sequence running = cache_->resume({}, prompt, *cache_->tree().find({}, prompt), 2048);
    cache_->set_running(1);
    for (uint32_t i = 2; i < 7; ++i) {
        Sequence other = std::move(*Sequence::create(memory_, 2048));
        testing::grow(other, ids(i, 128));
        ++now_;
        ASSERT_TRUE(cache_->keep({}, other, PointKind::tool_boundary));
    }
    cache_->write_behind(ConversationCache::Moment::idle);
    const auto n_handed_over = [this] {
        const auto nodes = cache_->tree().snapshots();
        return std::count_if(nodes.begin(), nodes.end(), [](const auto* node) { return PrefixTree::is_stored(*node); });
    };
    ASSERT_EQ(n_handed_over(), 4) << "the queue's length";
    // 17 pages and 6 states are in use, there is room for 24 and 4: the state of the first is enough.
    ASSERT_TRUE(cache_->make_room(6, ""));
    EXPECT_EQ(cache_->gauges().evictions, 1);
    EXPECT_EQ(cache_->match({}, prompt).cached, 0) << "the one that runs";
    EXPECT_EQ(n_handed_over(), 4);
}

TEST_F(ConversationCacheTest, NothingIsGivenUpForADamagedEntry) {
    start(12, Disk::there);
    const auto prompt = ids(1, 400);
    ask(prompt);
    cache_->finish_writing(10'000);
    start(12, Disk::there);
    for (uint32_t i = 2; i < 5; ++i) ask(ids(i, 128));
    std::filesystem::directory_entry longest;
    for (const auto& file : std::filesystem::directory_iterator(folder_ + "/store")) {
        if (file.path().extension() == ".pages" && (!longest.exists() || file.file_size() > longest.file_size())) longest = file;
    }
    std::fstream pages(longest.path(), std::ios::in | std::ios::out | std::ios::binary);
    pages.seekp(static_cast<std::streamoff>(longest.file_size()) - 5000);
    pages << "xy" << std::flush;
    const int64_t evictions = cache_->gauges().evictions;
    EXPECT_FALSE(cache_->read_back({}, prompt, 0, 2048).has_value());
    EXPECT_EQ(cache_->gauges().store->entries_damaged, 1);
    EXPECT_EQ(cache_->gauges().evictions, evictions);
}

TEST_F(ConversationCacheTest, AReadThatSavesLittleIsNotDone) {
    start(40, Disk::there);
    ask(ids(1, 300));
    cache_->finish_writing(1000);
    start(40, Disk::there);
    cache_->set_ms_per_token(1e-6);
    EXPECT_EQ(ask(ids(1, 300)), 300u);
    EXPECT_EQ(cache_->gauges().disk_reads, 0);
}

// Conversations of two owners grow, branch and are asked again, memory holds a part of them, and the program restarts. Whatever
// was in memory at the end of a run is found in the next one.
TEST_F(ConversationCacheTest, RandomUseAcrossRestartsLosesNothingThatWasWritten) {
    std::mt19937 random(7);
    struct Talk {
        CacheKey key;
        std::vector<TokenId> prompt;
    };
    std::vector<Talk> talks;
    size_t n_restarts = 0;
    start(36, Disk::there);
    for (int i = 0; i < 600; ++i) {
        const uint32_t dice = random() % 100;
        if (talks.size() < 3 || (dice < 10 && talks.size() < 9)) {
            talks.push_back({{dice % 2 == 0 ? "a" : "b", ""}, ids(static_cast<uint32_t>(i), 40 + random() % 80)});
            ask(talks.back().prompt, talks.back().key);
        } else if (dice < 70) {
            Talk& talk = talks[random() % talks.size()];
            const auto more = ids(static_cast<uint32_t>(i), 1 + random() % 60);
            talk.prompt.insert(talk.prompt.end(), more.begin(), more.end());
            if (talk.prompt.size() > 500) talk.prompt.resize(60 + random() % 100);
            ask(talk.prompt, talk.key);
        } else if (dice < 80) {
            Talk other = talks[random() % talks.size()];
            other.prompt.resize(1 + random() % other.prompt.size());
            other.prompt.push_back(60);
            ask(other.prompt, other.key);
            talks[random() % talks.size()] = other;
        } else if (dice < 95) {
            const Talk& talk = talks[random() % talks.size()];
            ask(talk.prompt, talk.key);
        } else {
            cache_->finish_writing(60'000);
            std::vector<size_t> in_memory;
            for (const Talk& talk : talks) in_memory.push_back(static_cast<size_t>(cache_->match(talk.key, talk.prompt).cached));
            start(36, Disk::there);
            ++n_restarts;
            for (size_t k = 0; k < talks.size(); ++k) {
                if (in_memory[k] < talks[k].prompt.size()) continue;
                EXPECT_EQ(ask(talks[k].prompt, talks[k].key), 0u) << "operation " << i << ", conversation " << k;
            }
        }
        ASSERT_LE(cache_->gauges().used_bytes, cache_->gauges().bytes_max);
    }
    EXPECT_GT(n_restarts, 5u);
}

}  // namespace
}  // namespace espalier::cache
