// What people see of a conversation directory: `espalier cache ls|rm`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cache/disk_format.h"

namespace espalier::cache {

struct StoredConversation {
    std::string id;  // 16 hexadecimal digits
    DiskIdentity identity;
    int32_t snapshots = 0;
    int32_t tokens = 0;  // of the longest snapshot
    int64_t bytes = 0;
    int64_t used_ns = 0;  // since 1970
};

struct DiskListing {
    std::vector<StoredConversation> conversations;  // last used first
    int64_t bytes = 0;                              // of everything there
    int32_t n_damaged = 0;                          // files, set aside or not
    int32_t n_unreadable = 0;                       // files that cannot be read now, with the rest of their conversations
    int32_t n_unknown = 0;                          // files of another version of the format
};

// A directory that does not exist has no conversations. Works beside a running server. Errors: invalid_input.
Result<DiskListing> list_conversations(const std::string& directory);

struct RemovalRequest {
    std::vector<std::string> ids;  // or their beginnings, if they fit one conversation only
    bool is_all = false;           // also damaged files and those of other versions
};
struct RemovalResult {
    int32_t conversations = 0;
    int64_t bytes = 0;
};
// All or nothing is removed as far as the request is concerned. Errors: invalid_input (an id that fits none or several),
// exhausted (a server uses the directory).
Result<RemovalResult> remove_conversations(const std::string& directory, const RemovalRequest& request);

}  // namespace espalier::cache
