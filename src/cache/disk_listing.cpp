#include "cache/disk_listing.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "cache/disk_io.h"
#include "cache/disk_scan.h"

namespace espalier::cache {
namespace {

struct Found {
    StoredConversation shown;
    std::set<uint32_t> records;
    std::vector<std::string> files;
};

bool exists(const std::string& directory) {
    struct stat info {};
    return ::stat(directory.c_str(), &info) == 0;
}

std::map<std::string, Found> group(const DirectoryScan& scan) {
    std::map<std::string, Found> by_id;
    for (const ScannedState& state : scan.states) {
        const std::string id = fmt::format("{:016x}", state.front.conversation);
        Found& found = by_id[id];
        found.shown.id = id;
        found.shown.identity = state.front.identity;
        found.shown.snapshots += 1;
        found.shown.tokens = std::max(found.shown.tokens, static_cast<int32_t>(state.front.tokens.size()));
        found.shown.bytes += static_cast<int64_t>(state.file.bytes);
        found.shown.used_ns = std::max(found.shown.used_ns, state.file.modified_ns);
        found.files.push_back(state.file.name);
        for (const PageRef& page : state.front.pages) {
            if (page.record != kInlineRecord) found.records.insert(page.record);
        }
    }
    for (const ScannedPages& pages : scan.pages) {
        const auto found = by_id.find(fmt::format("{:016x}", pages.header.conversation));
        if (found == by_id.end()) continue;
        found->second.files.push_back(pages.file.name);
        const uint64_t live_bytes = found->second.records.size() * pages.header.stride();
        found->second.shown.bytes += static_cast<int64_t>(kPagesHeaderBytes + live_bytes);
    }
    return by_id;
}

// Files that belong to no conversation, relative to the directory, and their bytes.
std::vector<std::string> others(const DirectoryScan& scan, const std::map<std::string, Found>& by_id, int64_t& bytes) {
    std::vector<std::string> names;
    const auto add = [&](const DirectoryFile& file, std::string name) {
        bytes += static_cast<int64_t>(file.bytes);
        names.push_back(std::move(name));
    };
    for (const ScannedDamage& damage : scan.damaged) add(damage.file, damage.file.name);
    for (const ScannedDamage& file : scan.unreadable) add(file.file, file.file.name);
    for (const DirectoryFile& file : scan.unknown) add(file, file.name);
    for (const DirectoryFile& file : scan.leftovers) add(file, file.name);
    for (const DirectoryFile& file : scan.set_aside) add(file, fmt::format("{}/{}", kDamagedDirectory, file.name));
    for (const ScannedPages& pages : scan.pages) {
        if (!by_id.contains(fmt::format("{:016x}", pages.header.conversation))) add(pages.file, pages.file.name);
    }
    return names;
}

Result<std::string> resolve(const std::string& id, const std::map<std::string, Found>& by_id, const std::string& directory) {
    std::vector<std::string> matches;
    for (const auto& [whole, found] : by_id) {
        if (!id.empty() && std::string_view(whole).substr(0, id.size()) == id) matches.push_back(whole);
    }
    if (matches.size() == 1) return matches.front();
    if (matches.empty())
        return invalid_input(fmt::format("no conversation \"{}\" in {}; \"espalier cache ls\" lists them", id, directory));
    return invalid_input(fmt::format("\"{}\" fits {} conversations, among them {} and {}; give more digits", id, matches.size(),
                                     matches[0], matches[1]));
}

}  // namespace

Result<DiskListing> list_conversations(const std::string& directory) {
    DiskListing listing;
    if (!exists(directory)) return listing;
    TRY_ASSIGN(const DirectoryScan scan, scan_directory(directory));
    const auto by_id = group(scan);
    (void)others(scan, by_id, listing.bytes);
    listing.n_damaged = static_cast<int32_t>(scan.damaged.size() + scan.set_aside.size());
    listing.n_unreadable = static_cast<int32_t>(scan.unreadable.size());
    listing.n_unknown = static_cast<int32_t>(scan.unknown.size());
    for (const auto& [id, found] : by_id) {
        listing.bytes += found.shown.bytes;
        listing.conversations.push_back(found.shown);
    }
    std::sort(listing.conversations.begin(), listing.conversations.end(),
              [](const StoredConversation& a, const StoredConversation& b) { return a.used_ns > b.used_ns; });
    return listing;
}

Result<RemovalResult> remove_conversations(const std::string& directory, const RemovalRequest& request) {
    RemovalResult result;
    if (!exists(directory)) {
        if (request.is_all) return result;
        return invalid_input(fmt::format("{} does not exist: nothing is stored", directory));
    }
    TRY_ASSIGN(const DirectoryLock lock, DirectoryLock::acquire(directory, Durability::kill));
    TRY_ASSIGN(const DirectoryScan scan, scan_directory(directory));
    const auto by_id = group(scan);
    std::set<std::string> ids;
    for (const std::string& id : request.ids) {
        TRY_ASSIGN(std::string whole, resolve(id, by_id, directory));
        ids.insert(std::move(whole));
    }
    std::vector<std::string> files;
    if (request.is_all) {
        files = others(scan, by_id, result.bytes);
        for (const auto& [id, found] : by_id) ids.insert(id);
    }
    for (const std::string& id : ids) {
        const Found& found = by_id.at(id);
        // State files first: no entry is ever without its pages.
        files.insert(files.end(), found.files.begin(), found.files.end());
        result.bytes += found.shown.bytes;
        result.conversations += 1;
    }
    for (const std::string& file : files) {
        const std::string path = directory + "/" + file;
        if (::unlink(path.c_str()) != 0) return invalid_input(fmt::format("{}: cannot be removed", path));
    }
    return result;
}

}  // namespace espalier::cache
