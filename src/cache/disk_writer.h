// The writer thread of the disk store: writes entries and carries out removals, one at a time, in the order they came.
//
// It reads memory that its owner promises not to change until the write is reported as ended, and knows nothing of sequences.
// After the first write that fails it writes nothing any more; removals go on, they free space.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/result.h"
#include "cache/disk_format.h"
#include "cache/disk_index.h"
#include "cache/disk_io.h"
#include "cache/disk_scan.h"

namespace espalier::cache {

struct DiskWrite {
    uint64_t entry = 0;
    StateFront front;                     // checksums are filled in by the writer
    const std::byte* state = nullptr;     // front.state_bytes
    std::vector<const std::byte*> pages;  // front.page_bytes each; null: the record has been written before
    int64_t modified_ns = 0;
};

struct DiskWriteEnd {
    uint64_t entry = 0;
    Status status;
    int64_t page_bytes = 0;
    int64_t state_bytes = 0;
};

// Deletes files, then gives the space of unneeded records back. Best effort: what stays is removed at the next start.
void carry_out(const std::string& directory, const DirectoryLock& lock, const DiskRemoval& removal);

class DiskWriter {
public:
    // `scan` tells the checksums of the records that are there. `lock` must outlive the writer.
    DiskWriter(std::string directory, const DirectoryLock& lock, const DirectoryScan& scan);
    // Ends after the write in progress. Removals that wait are carried out, writes are not.
    ~DiskWriter();

    void write(DiskWrite write);
    void remove(DiskRemoval removal);
    // Forgets the writes that have not begun; their entries.
    std::vector<uint64_t> drop_waiting();
    // Writes that have ended since the last call.
    std::vector<DiskWriteEnd> take_ended();
    void wait_until_idle();
    // Called after each write, from the writer thread.
    void set_on_ended(std::function<void()> on_ended);

private:
    using Task = std::variant<DiskWrite, DiskRemoval>;
    void run();
    void do_write(DiskWrite& write);
    Status write_entry(DiskWrite& write, DiskWriteEnd& end);
    struct PagesFile {
        std::optional<DiskFile> file;  // nothing: no record was new
        uint64_t bytes_before = 0;
    };
    Status write_pages(DiskWrite& write, PagesFile& pages, DiskWriteEnd& end);
    Status write_state(const DiskWrite& write, const std::string& part, DiskWriteEnd& end);

    const std::string directory_;
    const DirectoryLock& lock_;
    // Of the writer thread alone.
    std::map<uint64_t, std::vector<uint64_t>> checksums_;  // conversation to checksum by record
    Status failure_;
    // Shared.
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Task> tasks_;
    std::vector<DiskWriteEnd> ended_;
    std::function<void()> on_ended_;
    bool is_busy_ = false;
    bool is_stopping_ = false;
    std::thread thread_;
};

}  // namespace espalier::cache
