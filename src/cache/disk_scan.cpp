#include "cache/disk_scan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <map>
#include <set>
#include <utility>

namespace espalier::cache {
namespace {

Result<PagesHeader> read_pages_header(const std::string& path, uint64_t conversation, uint64_t& file_bytes) {
    TRY_ASSIGN(const DiskFile file, DiskFile::open(path, DiskFile::Mode::read));
    TRY_ASSIGN(file_bytes, file.size());
    std::string bytes(kPagesHeaderBytes, '\0');
    TRY(file.read_at(std::as_writable_bytes(std::span(bytes)), 0));
    TRY_ASSIGN(PagesHeader header, parse_pages_header(std::as_bytes(std::span(bytes)), path));
    if (header.conversation != conversation)
        return corrupt_data(fmt::format("{}: holds conversation {:016x}: the file was renamed", path, header.conversation));
    return header;
}

Result<StateFront> read_state(const std::string& path, uint64_t conversation) {
    TRY_ASSIGN(const DiskFile file, DiskFile::open(path, DiskFile::Mode::read));
    TRY_ASSIGN(StateFront front, read_state_front(file));
    if (front.conversation != conversation)
        return corrupt_data(fmt::format("{}: belongs to conversation {:016x}: the file was renamed", path, front.conversation));
    return front;
}

// The pages that a state names must be there.
Status check_pages(const StateFront& front, const ScannedPages* pages, const std::string& path) {
    if (front.n_inline() == front.pages.size()) return {};
    if (pages == nullptr) return corrupt_data(fmt::format("{}: its pages file is missing or damaged", path));
    if (pages->header.page_bytes != front.page_bytes)
        return corrupt_data(
            fmt::format("{}: pages of {} bytes, its pages file has {}", path, front.page_bytes, pages->header.page_bytes));
    for (const PageRef& page : front.pages) {
        if (page.record == kInlineRecord) continue;
        if (pages->header.record_offset(page.record) + front.page_bytes > pages->file.bytes)
            return corrupt_data(fmt::format("{}: names record {} of its pages file, which is only {} bytes long", path,
                                            page.record, pages->file.bytes));
    }
    return {};
}

// Sorts one file that could not be read into damaged or unknown. One that has gone meanwhile is neither.
void sort_failure(DirectoryScan& scan, const std::string& directory, const DirectoryFile& file, const Error& error) {
    if (error.code == ErrorCode::unsupported) scan.unknown.push_back(file);
    else if (::access((directory + "/" + file.name).c_str(), F_OK) == 0)
        (error.code == ErrorCode::corrupt_data ? scan.damaged : scan.unreadable).push_back({file, error.message});
}

// One file that cannot be read now takes its conversation along: its records must be neither cut off nor written over.
void leave_alone_unreadable(DirectoryScan& scan, std::vector<ScannedState>& states) {
    std::set<uint64_t> conversations;
    for (const ScannedDamage& file : scan.unreadable) conversations.insert(parse_file_name(file.file.name).conversation);
    const std::string reason = "another file of its conversation cannot be read";
    std::erase_if(states, [&](const ScannedState& state) {
        const bool is_left = conversations.contains(state.front.conversation);
        if (is_left) scan.unreadable.push_back({state.file, reason});
        return is_left;
    });
    std::erase_if(scan.pages, [&](const ScannedPages& pages) {
        const bool is_left = conversations.contains(pages.header.conversation);
        if (is_left) scan.unreadable.push_back({pages.file, reason});
        return is_left;
    });
}

// A pages file that no entry names and that has no header is what a process left that ended while it began one.
void drop_unnamed(DirectoryScan& scan, const std::vector<DirectoryFile>& files) {
    std::set<uint64_t> named;
    for (const DirectoryFile& file : files) {
        const DiskFileName name = parse_file_name(file.name);
        if (name.kind == DiskFileName::Kind::state) named.insert(name.conversation);
    }
    std::erase_if(scan.damaged, [&](const ScannedDamage& damage) {
        if (named.contains(parse_file_name(damage.file.name).conversation)) return false;
        scan.leftovers.push_back(damage.file);
        return true;
    });
}

}  // namespace

Result<StateFront> read_state_front(const DiskFile& file) {
    std::byte prefix[kStatePrefixBytes];
    TRY(file.read_at(prefix, 0));
    TRY_ASSIGN(const uint64_t front_bytes, state_front_bytes(prefix, file.path()));
    TRY_ASSIGN(const uint64_t file_bytes, file.size());
    if (front_bytes > file_bytes)
        return corrupt_data(
            fmt::format("{}: front of {} bytes in a file of {}: the file is cut off", file.path(), front_bytes, file_bytes));
    std::string bytes(front_bytes, '\0');
    TRY(file.read_at(std::as_writable_bytes(std::span(bytes)), 0));
    TRY_ASSIGN(StateFront front, parse_state_front(std::as_bytes(std::span(bytes)), file.path()));
    if (front.file_bytes() != file_bytes)
        return corrupt_data(fmt::format("{}: {} bytes, expected {}", file.path(), file_bytes, front.file_bytes()));
    return front;
}

Result<DirectoryScan> scan_directory(const std::string& directory) {
    TRY_ASSIGN(const std::vector<DirectoryFile> files, list_directory(directory));
    DirectoryScan scan;
    // States before pages: beside a store that is writing, every page that a state names is there by then.
    std::vector<ScannedState> states;
    for (const DirectoryFile& file : files) {
        const DiskFileName name = parse_file_name(file.name);
        if (name.kind == DiskFileName::Kind::leftover) scan.leftovers.push_back(file);
        if (name.kind != DiskFileName::Kind::state) continue;
        auto front = read_state(directory + "/" + file.name, name.conversation);
        if (front) states.push_back({file, name.entry, std::move(*front)});
        else sort_failure(scan, directory, file, front.error());
    }
    for (DirectoryFile file : files) {
        const DiskFileName name = parse_file_name(file.name);
        if (name.kind != DiskFileName::Kind::pages) continue;
        auto header = read_pages_header(directory + "/" + file.name, name.conversation, file.bytes);
        if (header) scan.pages.push_back({file, *header});
        else sort_failure(scan, directory, file, header.error());
    }
    drop_unnamed(scan, files);
    leave_alone_unreadable(scan, states);
    std::map<uint64_t, const ScannedPages*> by_conversation;
    for (const ScannedPages& pages : scan.pages) by_conversation[pages.header.conversation] = &pages;
    for (ScannedState& state : states) {
        const auto pages = by_conversation.find(state.front.conversation);
        const Status is_whole =
            check_pages(state.front, pages == by_conversation.end() ? nullptr : pages->second, directory + "/" + state.file.name);
        if (is_whole) scan.states.push_back(std::move(state));
        else scan.damaged.push_back({state.file, is_whole.error().message});
    }
    if (auto set_aside = list_directory(directory + "/" + kDamagedDirectory)) scan.set_aside = std::move(*set_aside);
    return scan;
}

}  // namespace espalier::cache
