// Names of the hub, checked before they become a URL or a path: what a user types, and what a server says.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace espalier::hub {

// "ORG/NAME[@REVISION][:FILE]"
struct RepoRequest {
    std::string repo;      // "ORG/NAME" or "NAME"
    std::string revision;  // branch, tag or commit; empty = none named
    std::string file;      // empty = what the engine needs
};

// Errors: invalid_input with what a name looks like.
Result<RepoRequest> parse_repo_request(std::string_view text);

// "ORG/NAME" or "NAME" of letters, digits, '.', '_', '-'; no "--", which separates the parts in folder names, and no "..".
bool is_repo_name(std::string_view name);
// A branch, tag, "refs/pr/1" or commit: letters, digits, '.', '_', '-', '/', '+'; every part a plain name.
bool is_revision(std::string_view name);
// The full name of a commit: 40 hexadecimal digits.
bool is_commit(std::string_view name);
// A path below a folder: relative, no empty, "." or ".." part, no control character or backslash, at most 512 bytes.
bool is_file_name(std::string_view name);
// The name of a blob: hexadecimal digits or another plain word of at most 128 characters.
bool is_blob_name(std::string_view name);

// "ORG/NAME" <-> "models--ORG--NAME", the folder's name in the cache.
std::string repo_folder(std::string_view repo);
std::optional<std::string> repo_of_folder(std::string_view folder);

// For a URL's path: everything but letters, digits, '-', '.', '_', '~' becomes %XX; '/' stays with Slash::keep.
enum class Slash { keep, encode };
std::string percent_encode(std::string_view text, Slash slash);

// Text from elsewhere, fit for a line on a terminal: control characters become spaces, cut at 200 bytes.
std::string printable(std::string_view text);

}  // namespace espalier::hub
