#include "cache/disk_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "cache/disk_io.h"
#include "cache/disk_scan.h"

namespace espalier::cache {
namespace {

// Slots on their way into a sequence; given back when it does not come to that.
struct Slots {
    explicit Slots(Memory& its_memory, size_t n_pages) : memory(its_memory) {
        state = memory.states().acquire();
        for (size_t index = 0; index < n_pages; ++index) pages.push_back(memory.pages().acquire());
        CHECK(state >= 0 && std::find(pages.begin(), pages.end(), -1) == pages.end(), "the caller has made room");
    }
    Slots(const Slots&) = delete;
    Slots& operator=(const Slots&) = delete;
    ~Slots() {
        if (state >= 0) memory.states().release(state);
        for (const int32_t page : pages) memory.pages().release(page);
    }
    Memory& memory;
    int32_t state = -1;
    std::vector<int32_t> pages;
};

// Fills `out` or leaves it zero: a lane that is hidden today must be a finite number all the same (attention.h).
Status read_checked(const DiskFile& file, std::span<std::byte> out, uint64_t offset, uint64_t checksum, const char* what) {
    Status status = file.read_at(out, offset);
    if (status && disk_checksum(out) != checksum)
        status = corrupt_data(fmt::format("{}: the checksum of {} at byte {} is wrong", file.path(), what, offset));
    if (!status) std::memset(out.data(), 0, out.size());
    return status;
}

Status check_front(const StateFront& front, const DiskReadRequest& request, const StateShape& shape, const std::string& path) {
    const std::string difference = front.identity.difference(*request.identity);
    if (!difference.empty()) return corrupt_data(fmt::format("{}: {}", path, difference));
    const bool is_same = front.key == request.key && front.conversation == request.conversation &&
                         front.page_bytes == shape.page_bytes() && front.state_bytes == shape.state_bytes() &&
                         std::equal(front.tokens.begin(), front.tokens.end(), request.tokens.begin(), request.tokens.end());
    if (!is_same) return corrupt_data(fmt::format("{}: not the entry that was there at the start", path));
    return {};
}

struct EntryFiles {
    DiskFile state;
    DiskFile pages;  // not open if every page is the entry's own
    StateFront front;
};

Result<EntryFiles> open_entry(const StateShape& shape, const DiskReadRequest& request) {
    const std::string path = request.directory + "/" + state_file_name(request.conversation, request.entry);
    EntryFiles files;
    TRY_ASSIGN(files.state, DiskFile::open(path, DiskFile::Mode::read));
    TRY_ASSIGN(files.front, read_state_front(files.state));
    TRY(check_front(files.front, request, shape, path));
    if (files.front.n_inline() < files.front.pages.size()) {
        const std::string pages = request.directory + "/" + pages_file_name(request.conversation);
        TRY_ASSIGN(files.pages, DiskFile::open(pages, DiskFile::Mode::read));
    }
    return files;
}

// Everything behind the front. place(index): where a page goes.
template <class Place>
Status read_contents(const EntryFiles& files, std::span<std::byte> state, const Place& place,
                     std::optional<uint32_t>& damaged_record) {
    const StateFront& front = files.front;
    TRY(read_checked(files.state, state, front.state_offset(), front.state_checksum, "the state"));
    const PagesHeader geometry{front.conversation, front.page_bytes};
    uint64_t n_inline = 0;
    for (size_t index = 0; index < front.pages.size(); ++index) {
        const PageRef& page = front.pages[index];
        const std::span<std::byte> out = place(index);
        if (page.record == kInlineRecord) {
            TRY(read_checked(files.state, out, front.inline_offset(n_inline++), page.checksum, "a page"));
            continue;
        }
        const Status status = read_checked(files.pages, out, geometry.record_offset(page.record), page.checksum, "a page");
        if (status) continue;
        damaged_record = page.record;
        return status.error();
    }
    return {};
}

}  // namespace

Result<Sequence> read_entry(Memory& memory, const DiskReadRequest& request, std::optional<uint32_t>& damaged_record) {
    const StateShape& shape = memory.shape();
    TRY_ASSIGN(const EntryFiles files, open_entry(shape, request));
    const StateFront& front = files.front;
    Slots slots(memory, front.pages.size());
    const auto place = [&](size_t index) { return std::span(memory.pages().data(slots.pages[index]), shape.page_bytes()); };
    TRY(read_contents(files, std::span(memory.states().data(slots.state), shape.state_bytes()), place, damaged_record));
    Sequence::Parts parts;
    parts.tokens = front.tokens;
    parts.pages = slots.pages;
    parts.state = slots.state;
    parts.mtp_length = static_cast<int32_t>(front.mtp_length);
    parts.context_tokens = request.context_tokens;
    Sequence sequence = Sequence::assemble(memory, parts);
    slots.state = -1;
    slots.pages.clear();
    return sequence;
}

Status check_entry(const StateShape& shape, const DiskReadRequest& request, std::optional<uint32_t>& damaged_record) {
    TRY_ASSIGN(const EntryFiles files, open_entry(shape, request));
    std::vector<std::byte> scratch(std::max(shape.state_bytes(), shape.page_bytes()));
    const auto place = [&](size_t) { return std::span(scratch).first(shape.page_bytes()); };
    return read_contents(files, std::span(scratch).first(shape.state_bytes()), place, damaged_record);
}

}  // namespace espalier::cache
