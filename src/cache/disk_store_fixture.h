// What the tests of the disk store share. A timeline's bytes are a function of its tokens alone (as law 1 makes them in the
// engine), so whatever comes back from disk is checked value by value against the tokens it claims to have.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cache/disk_io.h"
#include "cache/disk_scan.h"
#include "cache/disk_store.h"
#include "cache/test_shape.h"

namespace espalier::cache {

namespace fs = std::filesystem;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int32_t kContext = 8192;

inline DiskIdentity identity() {
    return {"demo", "m1", "t1", "a8", "bf16", "avx2-1"};
}

inline std::vector<TokenId> tokens_of(int32_t n, int32_t seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    std::vector<TokenId> tokens(static_cast<size_t>(n));
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 1000);
    return tokens;
}

inline std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
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
inline void append(Sequence& sequence, std::span<const TokenId> tokens, int32_t mtp_lag = 1) {
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

inline Sequence timeline(Memory& memory, std::span<const TokenId> tokens) {
    Sequence sequence = *Sequence::create(memory, kContext);
    if (!tokens.empty()) append(sequence, tokens);
    return sequence;
}

// Every committed number is what its tokens say; the first few that are not are reported.
inline void expect_right(Sequence& sequence) {
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
        options.durability = Durability::kill;  // a tenth of the time
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

    void keep(DiskStore& store, std::span<const TokenId> tokens, const CacheKey& key = {}) {
        EXPECT_EQ(store.keep(timeline(memory_, tokens), key), DiskStore::Kept::queued);
        store.flush();
    }

    // What the store gives for this prompt, checked; 0 if nothing.
    int32_t restored(DiskStore& store, std::span<const TokenId> prompt, const CacheKey& key = {}) {
        auto result = store.restore_longest(prompt, key, kContext);
        EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
        if (!result || !*result) return 0;
        Sequence& sequence = (*result)->sequence;
        EXPECT_TRUE(std::equal(sequence.tokens().begin(), sequence.tokens().end(), prompt.begin()));
        EXPECT_LE(sequence.length(), static_cast<int32_t>(prompt.size()));
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

}  // namespace espalier::cache
