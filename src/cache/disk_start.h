// The directory of a disk store at the start: its secret, what the file system can do, and cleaning up after a process that was
// killed.
#pragma once

#include <string>

#include "base/result.h"
#include "cache/disk_scan.h"

namespace espalier::cache {

// The secret under which keys are hashed; made at the first use, or when the file is cut off. Without the one that entries were
// written under they are never found again. Errors: invalid_input, exhausted: it cannot be read, or is missing and cannot be
// written.
Result<std::string> load_secret(const std::string& directory);

// Whether blocks can be given back from the middle of a file.
bool can_punch_holes(const std::string& directory);

// Moves one file into the damaged/ subdirectory.
bool move_aside(const std::string& directory, const std::string& file);

// Brings the directory, and what was read of it, to one sound state: temporary files go, damaged ones are set aside, pages that
// no entry names are cut off or punched out, times in the future (a clock was set back) become now and keep their order.
void clean_directory(const std::string& directory, DirectoryScan& scan, bool can_punch);

}  // namespace espalier::cache
