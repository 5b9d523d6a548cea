// One file of a repository, fetched in ranges over several connections, resumable, checked.
//
// The file is cut into chunks; a state file beside the unfinished data says how far each chunk is, so that an interrupted pull
// goes on in the middle of all of them. The state is written after the data: killed at any moment, it claims too little. What a
// power cut may do to the order is found by the checksum.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "hub/http.h"
#include "hub/hub_error.h"

namespace espalier::hub {

// What the hub says about a file before its first byte.
struct FileInfo {
    std::string blob;  // the checksum that names it
    int64_t bytes = 0;
    std::string commit;  // empty if not said
};
// From the answer to HEAD /REPO/resolve/COMMIT/FILE. Errors: corrupt_data naming the header that is missing.
Result<FileInfo> file_info(const ResponseHead& head, std::string_view file);
// X-Linked-Etag, else ETag, without its quotes; empty if there is none that can name a file.
std::string blob_of(const Headers& headers);

struct ContentRange {
    int64_t first = 0;
    int64_t last = 0;
    int64_t total = -1;  // -1 = "*"
};
// "bytes 0-99/1000". Nothing when it is none.
std::optional<ContentRange> parse_content_range(std::string_view text);

struct BlobRequest {
    std::string url;
    FileInfo info;
    std::string path;  // of the finished blob; unfinished data lies beside it
    int n_connections = 4;
    Asked asked;  // for messages
};

enum class Phase { fetching, checking };
using BlobProgress = std::function<void(Phase phase, int64_t bytes_done)>;

// Returns the bytes that came over the network. The caller holds the blob's lock. Errors: those of hub_error; exhausted when the
// disk is full; corrupt_data for a wrong checksum (what was fetched is removed) or a file that changed meanwhile.
Result<int64_t> download_blob(HttpSession& session, const BlobRequest& request, const BlobProgress& progress);

// Bytes on the disk of an unfinished download of that blob.
int64_t unfinished_bytes(const std::string& blob_path);

}  // namespace espalier::hub
