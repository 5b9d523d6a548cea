// What the disk store knows about its directory while it runs: which entries there are, which records they need, which goes next.
// Plain data of the engine thread; touches no file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/disk_format.h"
#include "cache/disk_scan.h"

namespace espalier::cache {

// What to do on disk when something leaves the index. Order: files first, holes after that has reached the disk.
struct DiskRemoval {
    std::vector<std::string> files;
    uint64_t conversation = 0;
    bool is_whole_conversation = false;
    std::vector<std::pair<uint64_t, uint64_t>> holes;  // offset and bytes in the conversation's pages file
};

class DiskIndex {
public:
    struct Entry {
        uint64_t id = 0;
        uint64_t conversation = 0;
        int32_t length = 0;
        int32_t branch = 0;
        PointKind kind = PointKind::ladder;
        std::vector<uint32_t> records;  // a page each; kInlineRecord
        int64_t state_file_bytes = 0;
        int64_t used_ns = 0;
        bool is_pending = false;  // waits for the writer, or is being written: never evicted
    };

    // can_punch: space of records that nobody needs goes back to the file system; otherwise it counts until the file goes.
    DiskIndex(DiskIdentity identity, uint64_t page_bytes, uint64_t state_bytes, bool can_punch)
        : identity_(std::move(identity)), page_bytes_(page_bytes), state_bytes_(state_bytes), can_punch_(can_punch) {}

    // Takes over what a scan found. Returns, for the log, why the first ignored entry is ignored; empty if none is.
    std::string load(const DirectoryScan& scan);

    // The longest entry of the key that is a prefix of the prompt, or all of it; null if none. Valid until the index changes.
    const Entry* find(std::span<const TokenId> prompt, const DiskKey& key) const;
    // The entry with exactly these tokens.
    const Entry* find_exact(std::span<const TokenId> tokens, const DiskKey& key) const;
    std::span<const TokenId> tokens(const Entry& entry) const;
    // All entries of the key that are a prefix of these tokens, the longest first.
    std::vector<const Entry*> find_prefixes(std::span<const TokenId> tokens, const DiskKey& key) const;

    // Where a new entry goes: the conversation that shares most with it, or a new one, and for each page the record it has or
    // gets.
    struct Plan {
        uint64_t conversation = 0;
        std::vector<PageRef> pages;  // no checksums
        std::vector<bool> is_new;    // the record is to be written
        int64_t bytes_new = 0;       // what it adds to the pages file
        int64_t bytes_whole = 0;     // all its pages
    };
    Plan plan(std::span<const TokenId> tokens, int32_t mtp_length, const DiskKey& key) const;
    void add(uint64_t id, std::span<const TokenId> tokens, const DiskKey& key, const Plan& plan, int64_t state_file_bytes,
             int64_t used_ns, PointKind kind);
    void set_written(uint64_t id);
    void set_used(uint64_t id, int64_t used_ns);
    // Errors are ours: the id exists.
    DiskRemoval remove(uint64_t id);
    // Entries of the same conversation that need this record.
    std::vector<uint64_t> entries_with_record(uint64_t conversation, uint32_t record) const;
    void add_set_aside(DirectoryFile file) {
        totals_.reset();
        strays_.push_back(std::move(file));
    }

    // The next to go when there is too much: set-aside files, then the entry unused for longest of a tenant that holds more than
    // its equal share. Nothing if all that is left waits for the writer.
    std::optional<DiskRemoval> evict_one(int64_t bytes_max);
    // An entry on the way to `id` that is missed least when there are more than entries_max: the one whose neighbours are close
    // relative to its distance from the end. Never the first, the last two, one where another
    // branch leaves, the first message end (system and tools), the first and the newest user boundary.
    std::optional<uint64_t> find_superfluous(uint64_t id, int32_t entries_max) const;

    // Counted when asked for after a change, then remembered: gauges ask at every step of the engine.
    struct Totals {
        int64_t bytes = 0;
        int32_t conversations = 0;  // of this identity, as the entries
        int32_t entries = 0;
        int32_t ignored = 0;
    };
    const Totals& totals() const;
    int64_t bytes() const { return totals().bytes; }
    int64_t pending_bytes() const;

private:
    struct Record {
        int32_t references = 0;
        uint32_t mtp_slots = 0;
    };
    struct Conversation {
        DiskKey key;
        uint64_t page_bytes = 0;
        bool is_ours = false;
        std::vector<Record> records;
        std::vector<std::vector<TokenId>> branches;  // no one a prefix of another; empty = free
        std::vector<Entry> entries;
    };
    struct Share {
        std::vector<uint32_t> records;  // kInlineRecord: none
        int32_t n_records = 0;
        int32_t tokens = 0;
    };
    Share find_shared(const Conversation& conversation, std::span<const TokenId> tokens, std::span<const PageRef> wanted) const;
    void insert(uint64_t conversation_id, std::span<const TokenId> tokens, std::span<const PageRef> pages, Entry entry);
    int64_t pages_file_bytes(const Conversation& conversation) const;
    Totals count() const;
    static int32_t branch_for(Conversation& conversation, std::span<const TokenId> tokens);
    Entry& at(uint64_t id);
    const Entry& at(uint64_t id) const { return const_cast<DiskIndex*>(this)->at(id); }

    DiskIdentity identity_;
    uint64_t page_bytes_;
    uint64_t state_bytes_;
    bool can_punch_;
    std::map<uint64_t, Conversation> conversations_;
    std::map<uint64_t, uint64_t> conversation_of_;  // entry id to conversation
    std::vector<DirectoryFile> strays_;             // names relative to the directory
    mutable std::optional<Totals> totals_;          // none: something changed since they were counted
};

}  // namespace espalier::cache
