// Checksums as the hub gives them: SHA-256 of large files, git's SHA-1 of small ones.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace espalier::hub {

// What the name of a blob says about its bytes.
enum class Checksum {
    sha256,    // 64 hexadecimal digits: of the bytes
    git_sha1,  // 40 hexadecimal digits: of "blob SIZE\0" and the bytes
    none,      // anything else: a name only
};
Checksum checksum_of(std::string_view blob_name);
std::string_view to_string(Checksum kind);

// The checksum of a file of n_bytes in lower-case hexadecimal digits; empty for none. `progress` gets the bytes read so far.
// Errors: invalid_input when the file cannot be read, corrupt_data when it has another length.
Result<std::string> digest_file(const std::string& path, Checksum kind, int64_t n_bytes,
                                const std::function<void(int64_t)>& progress);

}  // namespace espalier::hub
