// What lies in a conversation directory, from file names and headers alone. Changes nothing: for the start of a store and for
// `espalier cache ls`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cache/disk_format.h"
#include "cache/disk_io.h"

namespace espalier::cache {

// Subdirectory of files that turned out to be damaged, kept for whoever wants to know why.
inline constexpr const char* kDamagedDirectory = "damaged";
inline constexpr const char* kSecretFile = "secret";

struct ScannedPages {
    DirectoryFile file;
    PagesHeader header;
};

struct ScannedState {
    DirectoryFile file;
    uint64_t entry = 0;
    StateFront front;
};

struct ScannedDamage {
    DirectoryFile file;
    std::string message;
};

struct DirectoryScan {
    std::vector<ScannedPages> pages;
    std::vector<ScannedState> states;    // each one's pages are among the above and long enough
    std::vector<ScannedDamage> damaged;  // names of ours, contents that are not
    // Cannot be opened or read now, with whatever else their conversations have: to be left alone.
    std::vector<ScannedDamage> unreadable;
    std::vector<DirectoryFile> unknown;    // another version of the format
    std::vector<DirectoryFile> leftovers;  // temporary files of a process that ended while it wrote
    std::vector<DirectoryFile> set_aside;  // in the damaged/ subdirectory
};

// Errors: invalid_input when the directory cannot be listed.
Result<DirectoryScan> scan_directory(const std::string& directory);

// The front of one state file, as long as the file is what the front says. Errors: invalid_input (cannot be opened),
// corrupt_data, unsupported.
Result<StateFront> read_state_front(const DiskFile& file);

}  // namespace espalier::cache
