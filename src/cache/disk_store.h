// Conversations on disk: a restarted server, or one that had to forget a conversation, continues it without reading it again.
//
// What is kept is a snapshot: full KV pages go once into an append-only file per conversation, everything else (state slot,
// partial page, token ids, checksums) into one file per snapshot that names the pages it needs. A snapshot exists once its state
// file has been renamed into place; whatever the page file holds beyond that is waste that the next start cuts off.
// docs/prefix-cache-disk.md describes the bytes.
//
// All functions belong to the engine thread, which alone touches the index and the references of pages and slots. A writer thread
// does the writing: it gets pointers into memory that cannot change while a reference is held, and reports back through
// collect_finished(), which gives the references back. Until then the entry is served from memory.
//
// Trouble with the disk never ends a request: a damaged entry is set aside with a warning and counts as a miss, a full or
// read-only disk ends the writing with one warning (what is there can still be read).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "cache/disk_format.h"
#include "cache/disk_io.h"
#include "cache/prefix_tree.h"
#include "cache/sequence.h"

namespace espalier::cache {

class DiskStore {
public:
    struct Options {
        std::string directory;           // made with mode 0700 if missing; files in it have mode 0600
        DiskIdentity identity;           // entries of any other are ignored
        int64_t bytes_max = 0;           // of all files in the directory, also right at the start; and at most what the disk has
        int32_t writes_pending_max = 4;  // snapshots that wait for the writer; each holds its pages and state slot
        int32_t states_per_conversation_max = 16;
        Durability durability = Durability::power_cut;
        Log log;
    };
    // Scans the directory (headers only), removes what a crash left behind, sets damaged files aside, evicts down to the cap and
    // starts the writer. `memory` must outlive the store. Errors: invalid_input (no such directory and none can be made, not a
    // directory), exhausted when another process uses the directory: the caller says so and goes on without a store.
    static Result<std::unique_ptr<DiskStore>> open(const Options& options, Memory& memory);
    // Ends after the write in progress; gives up what waits. flush() first to keep it.
    ~DiskStore();
    DiskStore(const DiskStore&) = delete;
    DiskStore& operator=(const DiskStore&) = delete;

    // Length of the longest entry of `key` whose tokens are a prefix of `prompt` (or all of it), 0 if there is none. Reads no
    // file.
    int32_t find_longest(std::span<const TokenId> prompt, const CacheKey& key) const;

    // Whether exactly these tokens are on disk or on their way there. They do not count as used.
    bool has(std::span<const TokenId> tokens, const CacheKey& key) const;

    struct Restored {
        Sequence sequence;
        PointKind kind = PointKind::ladder;  // as it was handed over
        bool is_from_memory = false;         // the entry was still waiting for the writer
    };
    // That entry as a sequence; needs one free state slot and ceil(length / 64) free pages. An entry that turns out to be damaged
    // is set aside and the next shorter one taken; nothing if none is left. Errors: exhausted when the pools have no room
    // (nothing is changed). Blocks for the reading.
    Result<std::optional<Restored>> restore_longest(std::span<const TokenId> prompt, const CacheKey& key, int32_t context_tokens);

    // Length of the entry that restore_longest() would give, every byte of it read and checked: before something is given up to
    // make room for it. What turns out to be damaged is set aside.
    int32_t check_longest(std::span<const TokenId> prompt, const CacheKey& key);

    enum class Kept {
        queued,
        already_there,  // the same tokens are on disk or wait for the writer; they count as used now
        queue_full,     // ask again after collect_finished()
        too_large,      // more than the store may hold
        off,            // read-only or full disk
    };
    // Hands over one timeline (Sequence::fork(), Snapshot::restore()) to be written. The store holds its references until
    // collect_finished() sees that the write has ended, well or not.
    Kept keep(Sequence timeline, const CacheKey& key, PointKind kind = PointKind::ladder);

    // Gives back the references of writes that have ended. Cheap; call it between steps. Returns how many.
    int32_t collect_finished();
    // Gives up the writes that have not begun, when their memory is needed more. Returns how many.
    int32_t drop_pending();
    // Memory that nothing but what waits for the writer, or is being written, still holds.
    int64_t waiting_bytes() const;
    // Waits until everything handed over is written, then collects.
    void flush();

    // Called from the writer thread after each write, to wake the engine thread for collect_finished().
    void set_on_finished(std::function<void()> on_finished);

    struct Gauges {
        int64_t bytes = 0;  // on disk, with what is being written
        int64_t bytes_max = 0;
        int32_t conversations = 0;
        int32_t entries = 0;          // that this store can serve
        int32_t entries_ignored = 0;  // of another model, mode, kernel set or version
        int32_t entries_damaged = 0;  // set aside since the start
        int32_t writes_pending = 0;
        int64_t writes_finished = 0;
        int64_t page_bytes_written = 0;   // KV pages, each once
        int64_t state_bytes_written = 0;  // state files
        bool is_writing = true;           // false: off
    };
    Gauges gauges() const;

private:
    class Impl;
    explicit DiskStore(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace espalier::cache
