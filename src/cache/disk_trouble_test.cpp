// The store against everything that goes wrong with a disk: damage, full, read-only, another clock, a kill.
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <ctime>
#include <thread>

#include "cache/disk_listing.h"
#include "cache/disk_store_fixture.h"

namespace espalier::cache {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// --- damage -------------------------------------------------------------------------------------------------------------------

class DiskTroubleTest : public DiskStoreTest {};

class DiskDamageTest : public DiskStoreTest {
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

TEST_F(DiskDamageTest, AChangedByteInAnyPartOfAStateIsAMissAndOneWarning) {
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

TEST_F(DiskDamageTest, AStateCutOffAnywhereIsAMiss) {
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

TEST_F(DiskDamageTest, AChangedPageTakesAlongEveryEntryThatNeedsIt) {
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

TEST_F(DiskDamageTest, ADamagedOrMissingPagesFileIsAMissForAllItsEntries) {
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

TEST_F(DiskDamageTest, FilesThatChangePlacesAreNotBelieved) {
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

TEST_F(DiskDamageTest, WhatCannotBeOpenedNowIsLeftAlone) {
    auto store = open();
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none{3, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    const int32_t in_vain = restored(*store, tokens_);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_EQ(in_vain, 0);
    EXPECT_THAT(warnings_, ElementsAre(HasSubstr("cannot be read now")));
    EXPECT_EQ(store->gauges().entries_damaged, 0);
    EXPECT_EQ(restored(*store, tokens_), 330);
}

// As a user for whom modes count. The rest of the conversation is neither used nor cut off nor added to.
TEST_F(DiskDamageTest, WhatCannotBeReadAtTheStartIsThereForTheNextOne) {
    const auto other = tokens_of(200, 12);
    keep(*open(), std::span(other).first(150));
    const std::string longest = directory_ + "/" + longest_;
    constexpr uid_t kNobody = 65534;
    const bool is_root = ::geteuid() == 0;
    if (is_root) {
        for (const auto& item : fs::directory_iterator(directory_)) ASSERT_EQ(::chown(item.path().c_str(), kNobody, kNobody), 0);
        ASSERT_EQ(::chown(directory_.c_str(), kNobody, kNobody), 0);
        ASSERT_EQ(::seteuid(kNobody), 0);
    }
    ::chmod(longest.c_str(), 0);
    {
        auto store = open();
        ASSERT_NE(store, nullptr);
        EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("3 files cannot be read now"), HasSubstr(longest_))));
        EXPECT_EQ(list_conversations(directory_)->n_unreadable, 3) << "two states and their pages";
        EXPECT_EQ(restored(*store, tokens_), 0);
        EXPECT_EQ(restored(*store, other), 150);
        keep(*store, other);
        keep(*store, std::span(tokens_).first(200));
    }
    ::chmod(longest.c_str(), 0600);
    if (is_root) {
        ASSERT_EQ(::seteuid(0), 0);
    }
    EXPECT_EQ(restored(*open(), tokens_), 330);
}

TEST_F(DiskDamageTest, ASecretThatCannotBeReadIsNotReplaced) {
    const std::string secret = directory_ + "/secret";
    fs::rename(secret, secret + ".kept");
    fs::create_directory(secret);
    EXPECT_FALSE(DiskStore::open(options(), memory_).has_value());
    fs::remove(secret);
    fs::rename(secret + ".kept", secret);
    EXPECT_EQ(restored(*open(), tokens_), 330);
}

TEST_F(DiskDamageTest, CleansUpWhatAKilledProcessLeft) {
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

TEST_F(DiskDamageTest, DamagedFilesCountAndGoFirst) {
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

TEST_F(DiskTroubleTest, AFullDiskEndsTheWritingWithOneWarning) {
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
        (void)store->keep(timeline(memory_, joined(a, tokens_of(2000, 2))), {});
        (void)store->keep(timeline(memory_, tokens_of(3000, 3)), {});
        store->flush();
        ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    }
    EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("no longer kept on disk"), HasSubstr("too large"))));
    EXPECT_FALSE(store->gauges().is_writing);
    EXPECT_EQ(store->keep(timeline(memory_, tokens_of(100, 4)), {}), DiskStore::Kept::off);
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
TEST_F(DiskTroubleTest, AReadOnlyDirectoryIsReadAndSaidOnce) {
    const auto a = tokens_of(300, 1);
    keep(*open(), a);
    for (const auto& item : fs::directory_iterator(directory_)) ::chmod(item.path().c_str(), 0444);
    ::chmod(directory_.c_str(), 0555);
    const bool is_root = ::geteuid() == 0;
    if (is_root) {
        ASSERT_EQ(::seteuid(65534), 0);
    }
    {
        auto store = open();
        EXPECT_NE(store, nullptr);
        if (store) {
            EXPECT_FALSE(store->gauges().is_writing);
            EXPECT_EQ(restored(*store, joined(a, {1})), 300);
            EXPECT_EQ(store->keep(timeline(memory_, tokens_of(100, 4)), {}), DiskStore::Kept::off);
            EXPECT_EQ(store->keep(timeline(memory_, tokens_of(100, 5)), {}), DiskStore::Kept::off);
            store->flush();
        }
    }
    EXPECT_THAT(warnings_, ElementsAre(HasSubstr("cannot be written")));
    if (is_root) {
        ASSERT_EQ(::seteuid(0), 0);
    }
    ::chmod(directory_.c_str(), 0700);
}

TEST_F(DiskTroubleTest, AClockThatWasSetBackKeepsTheOrder) {
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
        EXPECT_EQ(store->find_longest(joined(all[0], {1}), {}), 0);
        EXPECT_EQ(store->find_longest(joined(all[3], {1}), {}), 640);
    }
    for (const std::string& path : files(".state")) {
        struct stat info {};
        ASSERT_EQ(::stat(path.c_str(), &info), 0);
        EXPECT_LE(info.st_mtim.tv_sec, ::time(nullptr) + 1);
    }
    EXPECT_THAT(warnings_, IsEmpty());
}

// Writes turns of a conversation as fast as it can, for ever. A byte goes to `ready` when something is on disk.
[[noreturn]] void write_until_killed(const DiskStore::Options& options, std::span<const TokenId> all, int ready) {
    auto memory = Memory::create(small_shape(), {512, 64});
    auto store = DiskStore::open(options, *memory);
    if (!store) ::_exit(1);
    for (int32_t turn = 0;; ++turn) {
        const auto end = static_cast<size_t>((turn * 37) % 2900 + 20);
        auto tokens = std::vector<TokenId>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(end));
        if (turn % 5 == 4) tokens = joined(tokens, tokens_of(70, turn));
        Sequence sequence = *Sequence::create(*memory, kContext);
        append(sequence, tokens);
        (void)(*store)->keep(std::move(sequence), {});
        if (turn == 0) (*store)->flush();
        if (turn == 0 && ::write(ready, "x", 1) != 1) ::_exit(2);
        (*store)->collect_finished();
    }
}

TEST_F(DiskTroubleTest, AKillAtAnyMomentLosesOnlyWhatWasBeingWritten) {
    const auto all = tokens_of(3000, 21);
    std::mt19937 random(3);
    DiskStore::Options capped = options();
    capped.bytes_max = 3 * kMiB;  // evictions and holes take part
    capped.states_per_conversation_max = 5;
    for (int round = 0; round < 25; ++round) {
        int ends[2];
        ASSERT_EQ(::pipe(ends), 0);
        const pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child == 0) write_until_killed(capped, all, ends[1]);
        ::close(ends[1]);
        // Every fourth one dies at some moment of its start.
        const bool is_waited_for = round % 4 != 1;
        char byte = 0;
        if (is_waited_for) {
            ASSERT_EQ(::read(ends[0], &byte, 1), 1);
        }
        ::close(ends[0]);
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 50));
        ::kill(child, SIGKILL);
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << WEXITSTATUS(status);
        warnings_.clear();
        auto store = open();
        ASSERT_NE(store, nullptr);
        for (size_t end = 1; end <= all.size(); end += 250) (void)restored(*store, std::span(all).first(end));
        EXPECT_GT(restored(*store, all), 0);
        EXPECT_THAT(warnings_, IsEmpty());
        EXPECT_LE(store->gauges().bytes, capped.bytes_max);
    }
}

}  // namespace
}  // namespace espalier::cache
