#include "cache/disk_start.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <set>
#include <vector>

#include "cache/disk_format.h"
#include "cache/disk_io.h"

namespace espalier::cache {
namespace {

// Cuts off and punches out what no entry names.
void trim_pages(const std::string& directory, const ScannedPages& pages, const std::set<uint32_t>& needed, bool can_punch) {
    auto file = DiskFile::open(directory + "/" + pages.file.name, DiskFile::Mode::read_write);
    if (!file) return;
    const uint64_t end = pages.header.record_offset(*needed.rbegin()) + pages.header.page_bytes;
    if (pages.file.bytes > end) (void)file->truncate(end);
    uint64_t next = 0;
    for (const uint32_t record : needed) {
        if (can_punch && record > next) file->punch(pages.header.record_offset(next), (record - next) * pages.header.stride());
        next = record + uint64_t{1};
    }
}

void bring_back_from_future(const std::string& directory, DirectoryScan& scan) {
    const int64_t now = unix_now_ns();
    std::vector<ScannedState*> states;
    for (ScannedState& state : scan.states) {
        if (state.file.modified_ns > now) states.push_back(&state);
    }
    std::sort(states.begin(), states.end(),
              [](const ScannedState* a, const ScannedState* b) { return a->file.modified_ns < b->file.modified_ns; });
    for (size_t index = 0; index < states.size(); ++index) {
        DirectoryFile& file = states[index]->file;
        file.modified_ns = now - static_cast<int64_t>(states.size() - index);
        set_modified(directory + "/" + file.name, file.modified_ns);
    }
}

}  // namespace

Result<std::string> load_secret(const std::string& directory) {
    const std::string path = directory + "/" + kSecretFile;
    if (::access(path.c_str(), F_OK) == 0 || errno != ENOENT) {
        TRY_ASSIGN(const DiskFile file, DiskFile::open(path, DiskFile::Mode::read));
        TRY_ASSIGN(const uint64_t bytes, file.size());
        std::string secret(kSecretBytes, '\0');
        if (bytes >= kSecretBytes) {
            TRY(file.read_at(std::as_writable_bytes(std::span(secret)), 0));
            return secret;
        }
    }
    const std::string part = path + ".part";
    std::string secret = random_bytes(kSecretBytes);
    TRY_ASSIGN(DiskFile file, DiskFile::open(part, DiskFile::Mode::create));
    TRY(file.write_at(secret, 0));
    TRY(file.sync());
    if (::rename(part.c_str(), path.c_str()) != 0) return invalid_input(fmt::format("{}: cannot be written", path));
    return secret;
}

bool can_punch_holes(const std::string& directory) {
    const std::string path = directory + "/" + state_file_name(0, 0) + ".part";
    bool can = false;
    if (auto file = DiskFile::open(path, DiskFile::Mode::create)) {
        can = file->truncate(2 * kDiskAlignment).has_value() && file->punch(kDiskAlignment, kDiskAlignment);
    }
    ::unlink(path.c_str());
    return can;
}

bool move_aside(const std::string& directory, const std::string& file) {
    const std::string target = directory + "/" + kDamagedDirectory;
    ::mkdir(target.c_str(), 0700);
    return ::rename((directory + "/" + file).c_str(), (target + "/" + file).c_str()) == 0;
}

void clean_directory(const std::string& directory, DirectoryScan& scan, bool can_punch) {
    for (const DirectoryFile& file : scan.leftovers) ::unlink((directory + "/" + file.name).c_str());
    for (const ScannedDamage& damage : scan.damaged) {
        if (move_aside(directory, damage.file.name)) scan.set_aside.push_back(damage.file);
    }
    std::map<uint64_t, std::set<uint32_t>> needed;
    for (const ScannedState& state : scan.states) {
        for (const PageRef& page : state.front.pages) {
            if (page.record != kInlineRecord) needed[state.front.conversation].insert(page.record);
        }
    }
    std::erase_if(scan.pages, [&](const ScannedPages& pages) {
        if (needed.contains(pages.header.conversation)) return false;
        ::unlink((directory + "/" + pages.file.name).c_str());
        return true;
    });
    for (const ScannedPages& pages : scan.pages) trim_pages(directory, pages, needed[pages.header.conversation], can_punch);
    bring_back_from_future(directory, scan);
}

}  // namespace espalier::cache
