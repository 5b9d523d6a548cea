// The store against real directories. A timeline's bytes are a function of its tokens alone (as law 1 makes them in the engine),
// so whatever comes back from disk is checked value by value against the tokens it claims to have.
#include "cache/disk_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

#include "cache/disk_io.h"
#include "cache/disk_scan.h"

namespace espalier::cache {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int32_t kContext = 8192;

StateShape small_shape() {
    StateShape shape;
    shape.n_kv_layers = 2;  // one of the trunk, one of MTP
    shape.n_kv_heads = 1;
    shape.head_dim = 16;
    shape.kv = kernels::KvType::f32;
    shape.n_recurrent_layers = 1;
    shape.n_value_heads = 2;
    shape.key_dim = 4;
    shape.value_dim = 4;
    shape.conv_channels = 8;
    shape.hidden = 8;
    return shape;
}

DiskIdentity identity() {
    return {"demo", "m1", "t1", "a8", "bf16", "avx2-1"};
}

std::vector<TokenId> tokens_of(int32_t n, int32_t seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    std::vector<TokenId> tokens(static_cast<size_t>(n));
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 1000);
    return tokens;
}

std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// What the value at a place is: a number that depends on the tokens up to `end` (exclusive) and the place.
class Content {
public:
    explicit Content(std::span<const TokenId> tokens) {
        uint32_t sum = 17;
        for (const TokenId token : tokens) {
            sum = sum * 31 + static_cast<uint32_t>(token) + 1;
            sums_.push_back(sum);
        }
    }
    float at(int32_t end, int32_t place) const {
        return static_cast<float>((sums_[static_cast<size_t>(end - 1)] ^ (static_cast<uint32_t>(place) * 2654435761U)) >> 9);
    }

private:
    std::vector<uint32_t> sums_;
};

// Calls fn(value, end, place) for every number of one position in one KV layer.
template <class Fn>
void for_each_value(Sequence& sequence, int32_t position, int32_t layer, Fn fn) {
    Memory& memory = sequence.memory();
    const int32_t page = sequence.page(position / kPageTokens);
    const int32_t lane = position % kPageTokens;
    auto* k = reinterpret_cast<float*>(memory.k_block(page, layer, 0));
    auto* v = reinterpret_cast<float*>(memory.v_block(page, layer, 0));
    for (int32_t d = 0; d < 16; ++d) {
        fn(k[d * kPageTokens + lane], d * 2 + layer * 100);
        fn(v[lane * 16 + d], d * 2 + 1 + layer * 100);
    }
}

// Appends as the engine does: pages, then a fresh state, then MTP slots up to one before the last token.
void append(Sequence& sequence, std::span<const TokenId> tokens, int32_t mtp_lag = 1) {
    Memory& memory = sequence.memory();
    const int32_t begin = sequence.length();
    const int32_t end = begin + static_cast<int32_t>(tokens.size());
    const std::vector<TokenId> all = joined({sequence.tokens().begin(), sequence.tokens().end()}, {tokens.begin(), tokens.end()});
    const Content content(all);
    const int32_t mtp_begin = sequence.mtp_length();
    const int32_t mtp_end = std::max(mtp_begin, end - mtp_lag);
    ASSERT_TRUE(sequence.make_writable(std::min(begin, mtp_begin), end).has_value());
    for (int32_t position = begin; position < end; ++position) {
        for_each_value(sequence, position, 0, [&](float& value, int32_t place) { value = content.at(position + 1, place); });
    }
    for (int32_t slot = mtp_begin; slot < mtp_end; ++slot) {  // slot p knows token p + 1
        for_each_value(sequence, slot, 1,
                       [&](float& value, int32_t place) { value = content.at(std::min(end, slot + 2), place); });
    }
    const int32_t state = memory.states().acquire();
    ASSERT_GE(state, 0);
    auto* floats = reinterpret_cast<float*>(memory.states().data(state));
    for (size_t i = 0; i < memory.shape().state_floats(); ++i) floats[i] = content.at(end, static_cast<int32_t>(i) + 1000);
    sequence.append(tokens, state);
    sequence.set_mtp_length(mtp_end);
}

Sequence timeline(Memory& memory, std::span<const TokenId> tokens) {
    Sequence sequence = *Sequence::create(memory, kContext);
    if (!tokens.empty()) append(sequence, tokens);
    return sequence;
}

// Every committed number is what its tokens say; the first few that are not are reported.
void expect_right(Sequence& sequence) {
    const Content content(sequence.tokens());
    int32_t n_wrong = 0;
    for (int32_t position = 0; position < sequence.length(); ++position) {
        for_each_value(sequence, position, 0,
                       [&](float value, int32_t place) { n_wrong += value == content.at(position + 1, place) ? 0 : 1; });
    }
    for (int32_t slot = 0; slot < sequence.mtp_length(); ++slot) {
        const int32_t end = std::min(sequence.length(), slot + 2);
        for_each_value(sequence, slot, 1,
                       [&](float value, int32_t place) { n_wrong += value == content.at(end, place) ? 0 : 1; });
    }
    const auto* floats = reinterpret_cast<const float*>(sequence.memory().states().data(sequence.state()));
    for (size_t i = 0; i < sequence.memory().shape().state_floats(); ++i)
        n_wrong += floats[i] == content.at(sequence.length(), static_cast<int32_t>(i) + 1000) ? 0 : 1;
    EXPECT_EQ(n_wrong, 0) << "at " << sequence.length() << " tokens";
}

class DiskStoreTest : public testing::Test {
protected:
    void SetUp() override {
        const auto* info = testing::UnitTest::GetInstance()->current_test_info();
        directory_ = testing::TempDir() + "espalier_disk_" + info->name() + "_" + std::to_string(::getpid());
        fs::remove_all(directory_);
    }
    void TearDown() override { fs::remove_all(directory_); }

    DiskStore::Options options() {
        DiskStore::Options options;
        options.directory = directory_;
        options.identity = identity();
        options.bytes_max = 256 * kMiB;
        options.log = Log::to_sink(LogLevel::info, [this](LogLevel level, std::string_view line) {
            (level == LogLevel::warning ? warnings_ : infos_).emplace_back(line);
        });
        return options;
    }

    std::unique_ptr<DiskStore> open(const DiskStore::Options& options) {
        auto store = DiskStore::open(options, memory_);
        EXPECT_TRUE(store.has_value()) << (store ? "" : store.error().message);
        return store ? std::move(*store) : nullptr;
    }
    std::unique_ptr<DiskStore> open() { return open(options()); }

    void keep(DiskStore& store, std::span<const TokenId> tokens, const std::string& salt = "") {
        EXPECT_EQ(store.keep(timeline(memory_, tokens), salt), DiskStore::Kept::queued);
        store.flush();
    }

    // What the store gives for this prompt, checked; 0 if nothing.
    int32_t restored(DiskStore& store, std::span<const TokenId> prompt, const std::string& salt = "") {
        auto result = store.restore_longest(prompt, salt, kContext);
        EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
        if (!result || !*result) return 0;
        Sequence& sequence = (*result)->sequence;
        EXPECT_TRUE(std::equal(sequence.tokens().begin(), sequence.tokens().end(), prompt.begin()));
        EXPECT_LT(sequence.length(), static_cast<int32_t>(prompt.size()));
        expect_right(sequence);
        return sequence.length();
    }

    std::vector<std::string> files(const std::string& ending) const {
        std::vector<std::string> paths;
        for (const auto& item : fs::directory_iterator(directory_)) {
            if (item.path().extension() == ending) paths.push_back(item.path().string());
        }
        std::sort(paths.begin(), paths.end());
        return paths;
    }
    int64_t disk_bytes() const {
        int64_t bytes = 0;
        for (const auto& item : fs::recursive_directory_iterator(directory_)) {
            struct stat info {};
            if (item.is_regular_file() && ::stat(item.path().c_str(), &info) == 0) bytes += info.st_blocks * 512;
        }
        return bytes;
    }
    void expect_pools_free() const {
        EXPECT_EQ(memory_.pages().n_free(), memory_.pages().n_slots());
        EXPECT_EQ(memory_.states().n_free(), memory_.states().n_slots());
    }

    std::string directory_;
    Memory memory_ = *Memory::create(small_shape(), {512, 64});
    std::vector<std::string> warnings_;
    std::vector<std::string> infos_;
};

TEST_F(DiskStoreTest, GivesBackTheSameBytesAfterARestartAtAnyLength) {
    for (const int32_t length : {1, 63, 64, 65, 66, 127, 128, 129, 200, 700}) {
        SCOPED_TRACE(length);
        const auto tokens = tokens_of(length + 1, length);
        keep(*open(), std::span(tokens).first(static_cast<size_t>(length)));
        auto store = open();
        EXPECT_EQ(store->find_longest(tokens, ""), length);
        EXPECT_EQ(restored(*store, tokens), length);
    }
    EXPECT_THAT(warnings_, IsEmpty());
    expect_pools_free();
}

TEST_F(DiskStoreTest, RestoresTheMtpLengthAndContinues) {
    const auto tokens = tokens_of(400, 5);
    keep(*open(), std::span(tokens).first(200));
    auto store = open();
    auto result = store->restore_longest(tokens, "", kContext);
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
    EXPECT_EQ(store->keep(timeline(memory_, std::span(tokens).first(300)), ""), DiskStore::Kept::queued);
    EXPECT_EQ(store->find_longest(tokens, ""), 300);
    {
        auto result = store->restore_longest(tokens, "", kContext);
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

TEST_F(DiskStoreTest, FindsTheLongestProperPrefixOfTheSameSalt) {
    auto store = open();
    const auto tokens = tokens_of(500, 2);
    keep(*store, std::span(tokens).first(100), "alice");
    keep(*store, std::span(tokens).first(300), "alice");
    keep(*store, std::span(tokens).first(400), "bob");
    for (int round = 0; round < 2; ++round) {
        EXPECT_EQ(store->find_longest(tokens, "alice"), 300);
        EXPECT_EQ(store->find_longest(std::span(tokens).first(301), "alice"), 300);
        EXPECT_EQ(store->find_longest(std::span(tokens).first(300), "alice"), 100);  // proper: something is left to run
        EXPECT_EQ(store->find_longest(tokens, "bob"), 400);
        EXPECT_EQ(store->find_longest(tokens, ""), 0);
        EXPECT_EQ(store->find_longest(tokens, "carol"), 0);
        auto other = tokens;
        other[250] += 1;
        EXPECT_EQ(restored(*store, other, "alice"), 100);
        other[50] += 1;
        EXPECT_EQ(store->find_longest(other, "alice"), 0);
        EXPECT_EQ(store->find_longest({}, "alice"), 0);
        store.reset();
        store = open();
    }
}

TEST_F(DiskStoreTest, SaltsAreNotReadableOnDisk) {
    keep(*open(), tokens_of(100, 2), "sk-secret-key");
    for (const auto& item : fs::directory_iterator(directory_)) {
        std::ifstream in(item.path(), std::ios::binary);
        const std::string bytes((std::istreambuf_iterator<char>(in)), {});
        EXPECT_EQ(bytes.find("secret-key"), std::string::npos) << item.path();
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
        EXPECT_EQ(store->find_longest(tokens, ""), 0);
        EXPECT_EQ(store->gauges().entries_ignored, 1);
        EXPECT_EQ(store->gauges().entries, 0);
        EXPECT_THAT(infos_, ElementsAre(AllOf(HasSubstr("1 stored snapshots"), HasSubstr(message))));
    }
    DiskStore::Options renamed = options();
    renamed.identity.model = "the same weights under another name";
    EXPECT_EQ(open(renamed)->find_longest(tokens, ""), 150);
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
        EXPECT_EQ(store->keep(sequence.fork(), ""), DiskStore::Kept::queued);
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
        EXPECT_EQ(store->keep(sequence.fork(), ""), DiskStore::Kept::queued);
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
    EXPECT_EQ(store->keep(sequence.fork(), ""), DiskStore::Kept::queued);
    append(sequence, std::span(tokens).subspan(200), 1);  // all of them
    EXPECT_EQ(store->keep(sequence.fork(), ""), DiskStore::Kept::queued);
    store->flush();
    const auto page_bytes = static_cast<int64_t>(memory_.shape().page_bytes());
    EXPECT_EQ(store->gauges().page_bytes_written, (3 + 4) * page_bytes);
    EXPECT_EQ(restored(*store, joined(tokens, {1})), 300);
    store.reset();
    store = open();
    EXPECT_EQ(restored(*store, tokens), 200);
    EXPECT_EQ(restored(*store, joined(tokens, {1})), 300);
    // With fewer slots wanted the stored page will do.
    Sequence bare = *Sequence::create(memory_, kContext);
    append(bare, std::span(tokens).first(264), 264);
    EXPECT_EQ(store->keep(bare.fork(), ""), DiskStore::Kept::queued);
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
    EXPECT_EQ(store->find_longest(joined(a, {1}), ""), 640);
    EXPECT_EQ(store->find_longest(joined(b, {1}), ""), 0);
    EXPECT_EQ(files(".pages").size(), 3u);
    // Also at the start, with a smaller cap.
    store.reset();
    capped.bytes_max = one * 3 / 2;
    store = open(capped);
    EXPECT_LE(disk_bytes(), capped.bytes_max + 32768);
    EXPECT_EQ(store->find_longest(joined(d, {1}), ""), 640);
    EXPECT_EQ(store->gauges().entries, 1);
    EXPECT_EQ(store->keep(timeline(memory_, tokens_of(2000, 5)), ""), DiskStore::Kept::too_large);
    EXPECT_EQ(restored(*store, joined(d, {1})), 640);
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
    EXPECT_EQ(store->find_longest(joined(joined(stem, tokens_of(300, 100)), {1}), ""), 0);
}

TEST_F(DiskStoreTest, OneTenantCannotPushAnotherBelowItsShare) {
    auto store = open();
    keep(*store, tokens_of(640, 1), "quiet");
    const int64_t one = store->gauges().bytes;
    store.reset();
    DiskStore::Options capped = options();
    capped.bytes_max = one * 4 + one / 2;
    store = open(capped);
    for (int i = 0; i < 10; ++i) keep(*store, tokens_of(640, 10 + i), "loud");
    EXPECT_LE(store->gauges().bytes, capped.bytes_max);
    EXPECT_EQ(restored(*store, joined(tokens_of(640, 1), {1}), "quiet"), 640);
    EXPECT_EQ(restored(*store, joined(tokens_of(640, 19), {1}), "loud"), 640);
}

TEST_F(DiskStoreTest, ThinsTheStatesOfALongConversationAndKeepsJunctions) {
    DiskStore::Options few = options();
    few.states_per_conversation_max = 6;
    auto store = open(few);
    const auto all = tokens_of(2000, 9);
    keep(*store, std::span(all).first(100));
    keep(*store, std::span(all).first(500));
    keep(*store, joined({all.begin(), all.begin() + 520}, tokens_of(60, 1)));  // leaves after 500
    for (size_t end = 600; end <= 2000; end += 100) keep(*store, std::span(all).first(end));
    const auto has = [&](size_t length) {
        return store->find_longest(std::span(all).first(std::min(length + 1, all.size())), "") == static_cast<int32_t>(length);
    };
    EXPECT_EQ(store->gauges().entries, few.states_per_conversation_max + 1);
    EXPECT_TRUE(has(100));
    EXPECT_TRUE(has(500));
    EXPECT_TRUE(has(1900));
    EXPECT_EQ(restored(*store, joined(all, {1})), 2000);
}

TEST_F(DiskStoreTest, BoundsWhatWaitsAndGivesItUpOnRequest) {
    DiskStore::Options bounded = options();
    bounded.writes_pending_max = 2;
    auto store = open(bounded);
    const auto a = tokens_of(200, 1);
    EXPECT_EQ(store->keep(timeline(memory_, a), ""), DiskStore::Kept::queued);
    EXPECT_EQ(store->keep(timeline(memory_, a), ""), DiskStore::Kept::already_there);
    EXPECT_EQ(store->keep(timeline(memory_, tokens_of(200, 2)), ""), DiskStore::Kept::queued);
    EXPECT_EQ(store->keep(timeline(memory_, tokens_of(200, 3)), ""), DiskStore::Kept::queue_full);
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
        auto result = store->restore_longest(tokens, "", kContext);
        ASSERT_FALSE(result.has_value());
        EXPECT_EQ(result.error().code, ErrorCode::exhausted);
    }
    EXPECT_EQ(restored(*store, tokens), 1000);
    auto small = store->restore_longest(tokens, "", 500);
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

// --- damage -------------------------------------------------------------------------------------------------------------------

class DamageTest : public DiskStoreTest {
protected:
    void SetUp() override {
        DiskStoreTest::SetUp();
        tokens_ = tokens_of(331, 11);
        auto store = open();
        keep(*store, std::span(tokens_).first(170));
        keep(*store, std::span(tokens_).first(330));
        store.reset();
        saved_ = directory_ + ".saved";
        fs::remove_all(saved_);
        fs::copy(directory_, saved_, fs::copy_options::recursive);
        for (const std::string& path : files(".state")) {
            const auto front = read_state_front(*DiskFile::open(path, DiskFile::Mode::read));
            if (front->tokens.size() == 330) longest_ = fs::path(path).filename();
        }
        ASSERT_FALSE(longest_.empty());
    }
    void TearDown() override {
        fs::remove_all(saved_);
        DiskStoreTest::TearDown();
    }
    void reset_directory() {
        fs::remove_all(directory_);
        fs::copy(saved_, directory_, fs::copy_options::recursive);
        warnings_.clear();
    }
    static void flip(const std::string& path, uint64_t offset) {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(static_cast<std::streamoff>(offset));
        const int byte = file.get();
        file.seekp(static_cast<std::streamoff>(offset));
        file.put(static_cast<char>(byte ^ 0x20));
    }
    std::vector<TokenId> tokens_;
    std::string saved_;
    std::string longest_;
};

TEST_F(DamageTest, AChangedByteInAnyPartOfAStateIsAMissAndOneWarning) {
    const std::string path = directory_ + "/" + longest_;
    const auto front = *read_state_front(*DiskFile::open(path, DiskFile::Mode::read));
    const uint64_t front_bytes = front.front_bytes();
    ASSERT_EQ(front.n_inline(), 1u);
    std::vector<uint64_t> offsets = {0,
                                     9,
                                     13,
                                     17,
                                     25,
                                     100,
                                     front_bytes / 2,
                                     front_bytes - 1,
                                     front.state_offset(),
                                     front.state_offset() + front.state_bytes - 1,
                                     front.inline_offset(0),
                                     front.inline_offset(0) + front.page_bytes - 1};
    for (uint64_t offset = 0; offset < front_bytes; offset += 97) offsets.push_back(offset);
    for (const uint64_t offset : offsets) {
        SCOPED_TRACE(offset);
        reset_directory();
        flip(path, offset);
        auto store = open();
        EXPECT_EQ(restored(*store, tokens_), 170);
        EXPECT_EQ(restored(*store, tokens_), 170);
        // A changed version number is another version's file: not ours to judge.
        const bool is_version = offset >= 8 && offset < 12;
        EXPECT_EQ(warnings_.size(), is_version ? 0u : 1u);
        EXPECT_EQ(store->gauges().entries_damaged, is_version ? 0 : 1);
        EXPECT_EQ(fs::exists(directory_ + "/damaged/" + longest_), !is_version);
        EXPECT_EQ(fs::exists(path), is_version);
    }
    expect_pools_free();
}

TEST_F(DamageTest, AStateCutOffAnywhereIsAMiss) {
    const std::string path = directory_ + "/" + longest_;
    const uint64_t whole = fs::file_size(path);
    for (const uint64_t bytes :
         {uint64_t{0}, uint64_t{1}, uint64_t{23}, uint64_t{24}, uint64_t{1000}, whole / 2, whole - 1, whole + 1}) {
        SCOPED_TRACE(bytes);
        reset_directory();
        fs::resize_file(path, bytes);
        auto store = open();
        EXPECT_EQ(restored(*store, tokens_), 170);
        EXPECT_EQ(warnings_.size(), 1u);
    }
}

TEST_F(DamageTest, AChangedPageTakesAlongEveryEntryThatNeedsIt) {
    const std::string pages = files(".pages").front();
    const PagesHeader geometry{0, memory_.shape().page_bytes()};
    // Pages 0 and 1 belong to both entries, 2 to 4 to the longer one.
    for (const auto& [record, left] : {std::pair{0u, 0}, std::pair{1u, 0}, std::pair{2u, 170}, std::pair{4u, 170}}) {
        SCOPED_TRACE(record);
        reset_directory();
        flip(pages, geometry.record_offset(record) + 5000);
        auto store = open();
        EXPECT_EQ(warnings_.size(), 0u);  // page data is read when it is needed
        EXPECT_EQ(restored(*store, tokens_), left);
        EXPECT_EQ(warnings_.size(), 1u);
        EXPECT_EQ(store->gauges().entries_damaged, left == 0 ? 2 : 1);
        // What was wrong does not stay in memory: hidden lanes must be finite.
        store->flush();
        store.reset();
        warnings_.clear();
        EXPECT_EQ(restored(*open(), tokens_), left);
        EXPECT_THAT(warnings_, IsEmpty());
    }
    expect_pools_free();
}

TEST_F(DamageTest, ADamagedOrMissingPagesFileIsAMissForAllItsEntries) {
    const std::string pages = files(".pages").front();
    for (int kind = 0; kind < 4; ++kind) {
        SCOPED_TRACE(kind);
        reset_directory();
        if (kind == 0) flip(pages, 0);
        if (kind == 1) flip(pages, 30);
        if (kind == 2) fs::remove(pages);
        if (kind == 3) fs::resize_file(pages, 4096 + memory_.shape().page_bytes() * 2);  // too short for the longer one
        auto store = open();
        EXPECT_EQ(restored(*store, tokens_), kind == 3 ? 170 : 0);
        EXPECT_EQ(warnings_.size(), 1u);
        // The store goes on working.
        keep(*store, std::span(tokens_).first(330));
        EXPECT_EQ(restored(*store, tokens_), 330);
        store.reset();
        warnings_.clear();
        EXPECT_EQ(restored(*open(), tokens_), 330);
        EXPECT_THAT(warnings_, IsEmpty());
    }
}

TEST_F(DamageTest, FilesThatChangePlacesAreNotBelieved) {
    // The shorter entry's bytes under the longer one's name, behind the store's back.
    auto store = open();
    for (const std::string& path : files(".state")) {
        if (fs::path(path).filename() != longest_)
            fs::copy_file(path, directory_ + "/" + longest_, fs::copy_options::overwrite_existing);
    }
    EXPECT_EQ(restored(*store, tokens_), 170);
    EXPECT_EQ(warnings_.size(), 1u);
    // A state of one conversation under the name of another.
    store.reset();
    reset_directory();
    fs::rename(directory_ + "/" + longest_, directory_ + "/" + state_file_name(1, 2));
    EXPECT_EQ(restored(*open(), tokens_), 170);
    EXPECT_THAT(warnings_, ElementsAre(HasSubstr("belongs to conversation")));
}

TEST_F(DamageTest, CleansUpWhatAKilledProcessLeft) {
    const std::string pages = files(".pages").front();
    const uint64_t whole = fs::file_size(pages);
    fs::resize_file(pages, whole + 123456);  // pages without an entry
    std::ofstream(directory_ + "/" + longest_ + ".part") << "half";
    std::ofstream(directory_ + "/" + pages_file_name(7)) << "";                            // begun, no header
    std::ofstream(directory_ + "/" + pages_file_name(8)) << encode_pages_header({8, 64});  // begun, no entry
    std::ofstream(directory_ + "/notes.txt") << "somebody else's";
    auto store = open();
    EXPECT_EQ(restored(*store, tokens_), 330);
    EXPECT_THAT(warnings_, IsEmpty());
    EXPECT_EQ(fs::file_size(pages), whole);
    EXPECT_THAT(files(".part"), IsEmpty());
    EXPECT_EQ(files(".pages").size(), 1u);
    EXPECT_TRUE(fs::exists(directory_ + "/notes.txt"));
}

TEST_F(DamageTest, DamagedFilesCountAndGoFirst) {
    flip(directory_ + "/" + longest_, 200);
    auto store = open();
    const int64_t with_damage = store->gauges().bytes;
    store.reset();
    DiskStore::Options capped = options();
    capped.bytes_max = with_damage - 1;
    store = open(capped);
    EXPECT_FALSE(fs::exists(directory_ + "/damaged/" + longest_));
    EXPECT_EQ(restored(*store, tokens_), 170);
}

// --- full and read-only disks, clocks, kills ----------------------------------------------------------------------------------

TEST_F(DiskStoreTest, AFullDiskEndsTheWritingWithOneWarning) {
    auto store = open();
    const auto a = tokens_of(300, 1);
    keep(*store, a);
    const int64_t bytes_before = disk_bytes();
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    for (const rlim_t limit : {rlim_t{200000}, rlim_t{100}}) {
        rlimit small = before;
        small.rlim_cur = limit;
        ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
        (void)store->keep(timeline(memory_, joined(a, tokens_of(2000, 2))), "");
        (void)store->keep(timeline(memory_, tokens_of(3000, 3)), "");
        store->flush();
        ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    }
    EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("no longer kept on disk"), HasSubstr("too large"))));
    EXPECT_FALSE(store->gauges().is_writing);
    EXPECT_EQ(store->keep(timeline(memory_, tokens_of(100, 4)), ""), DiskStore::Kept::off);
    EXPECT_LE(disk_bytes(), bytes_before + 8192);  // the half-written pages are cut off
    EXPECT_EQ(restored(*store, joined(a, {1})), 300);
    expect_pools_free();
    store.reset();
    store = open();
    EXPECT_EQ(store->gauges().entries, 1);
    EXPECT_EQ(store->gauges().entries_damaged, 0);
    keep(*store, joined(a, tokens_of(2000, 2)));
    EXPECT_EQ(restored(*store, joined(joined(a, tokens_of(2000, 2)), {1})), 2300);
}

// As a user for whom modes count: root may write anywhere.
TEST_F(DiskStoreTest, AReadOnlyDirectoryIsReadAndSaidOnce) {
    const auto a = tokens_of(300, 1);
    keep(*open(), a);
    for (const auto& item : fs::directory_iterator(directory_)) ::chmod(item.path().c_str(), 0444);
    ::chmod(directory_.c_str(), 0555);
    const bool is_root = ::geteuid() == 0;
    if (is_root) ASSERT_EQ(::seteuid(65534), 0);
    {
        auto store = open();
        EXPECT_NE(store, nullptr);
        if (store) {
            EXPECT_FALSE(store->gauges().is_writing);
            EXPECT_EQ(restored(*store, joined(a, {1})), 300);
            EXPECT_EQ(store->keep(timeline(memory_, tokens_of(100, 4)), ""), DiskStore::Kept::off);
            EXPECT_EQ(store->keep(timeline(memory_, tokens_of(100, 5)), ""), DiskStore::Kept::off);
            store->flush();
        }
    }
    EXPECT_THAT(warnings_, ElementsAre(HasSubstr("cannot be written")));
    if (is_root) ASSERT_EQ(::seteuid(0), 0);
    ::chmod(directory_.c_str(), 0700);
}

TEST_F(DiskStoreTest, AClockThatWasSetBackKeepsTheOrder) {
    std::vector<std::vector<TokenId>> all;
    int64_t one = 0;
    {
        auto store = open();
        for (int i = 0; i < 4; ++i) {
            all.push_back(tokens_of(640, i));
            keep(*store, all.back());
            if (i == 0) one = store->gauges().bytes;
        }
    }
    // The first three were used "next year", the third of them first.
    const int64_t next_year = unix_now_ns() + int64_t{365} * 86400 * 1'000'000'000;
    for (const std::string& path : files(".state")) {
        const auto front = read_state_front(*DiskFile::open(path, DiskFile::Mode::read));
        for (int i = 0; i < 3; ++i) {
            if (front->tokens == all[static_cast<size_t>(i)])
                set_modified(path, next_year + (i == 2 ? 0 : i + 1) * 1'000'000'000LL);
        }
    }
    DiskStore::Options capped = options();
    capped.bytes_max = one * 5 / 2;
    {
        auto store = open(capped);
        // Order of use: 3, 2, 0, 1. Two are left.
        EXPECT_EQ(store->gauges().entries, 2);
        EXPECT_EQ(restored(*store, joined(all[0], {1})), 640);
        EXPECT_EQ(restored(*store, joined(all[1], {1})), 640);
        keep(*store, all[3]);
        EXPECT_EQ(store->find_longest(joined(all[0], {1}), ""), 0);
        EXPECT_EQ(store->find_longest(joined(all[3], {1}), ""), 640);
    }
    for (const std::string& path : files(".state")) {
        struct stat info {};
        ASSERT_EQ(::stat(path.c_str(), &info), 0);
        EXPECT_LE(info.st_mtim.tv_sec, ::time(nullptr) + 1);
    }
    EXPECT_THAT(warnings_, IsEmpty());
}

// A child writes turns of a conversation as fast as it can and is killed somewhere in between.
TEST_F(DiskStoreTest, AKillAtAnyMomentLosesOnlyWhatWasBeingWritten) {
    const auto all = tokens_of(3000, 21);
    std::mt19937 random(3);
    int32_t longest = 0;
    for (int round = 0; round < 25; ++round) {
        const pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            auto memory = Memory::create(small_shape(), {512, 64});
            DiskStore::Options child_options = options();
            child_options.bytes_max = 3 * kMiB;  // evictions and holes take part
            child_options.states_per_conversation_max = 5;
            auto store = DiskStore::open(child_options, *memory);
            if (!store) ::_exit(1);
            for (int32_t turn = 0;; ++turn) {
                const auto end = static_cast<size_t>((turn * 37) % 2900 + 20);
                auto tokens = std::vector<TokenId>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(end));
                if (turn % 5 == 4) tokens = joined(tokens, tokens_of(70, turn));
                Sequence sequence = *Sequence::create(*memory, kContext);
                append(sequence, tokens);
                (void)(*store)->keep(std::move(sequence), "");
                (*store)->collect_finished();
            }
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5 + random() % 60));
        ::kill(child, SIGKILL);
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << WEXITSTATUS(status);
        warnings_.clear();
        auto store = open();
        ASSERT_NE(store, nullptr);
        for (size_t end = 1; end <= all.size(); end += 250) (void)restored(*store, std::span(all).first(end));
        longest = std::max(longest, restored(*store, all));
        EXPECT_THAT(warnings_, IsEmpty());
        EXPECT_LE(store->gauges().bytes, 3 * kMiB + 65536);
    }
    EXPECT_GT(longest, 100);
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
        const std::string salt = random() % 4 == 0 ? "b" : "a";
        const auto& base = known[random() % known.size()];
        const auto cut = static_cast<std::ptrdiff_t>(1 + random() % base.size());
        auto tokens = joined({base.begin(), base.begin() + cut}, tokens_of(static_cast<int32_t>(random() % 200), step));
        if (tokens.size() > 1500) tokens.resize(1500);
        Sequence sequence = *Sequence::create(memory_, kContext);
        if (auto hit = store->restore_longest(tokens, salt, kContext); hit && *hit) {
            sequence = std::move((*hit)->sequence);
            expect_right(sequence);
            ++n_hits;
        }
        const auto rest = std::span(tokens).subspan(static_cast<size_t>(sequence.length()));
        if (!rest.empty()) append(sequence, rest, random() % 3 == 0 ? 2 : 1);
        const auto kept = store->keep(std::move(sequence), salt);
        EXPECT_TRUE(kept == DiskStore::Kept::queued || kept == DiskStore::Kept::already_there ||
                    kept == DiskStore::Kept::queue_full);
        if (kept == DiskStore::Kept::queued) {
            EXPECT_EQ(store->find_longest(joined(tokens, {1}), salt), static_cast<int32_t>(tokens.size()));
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
