// A model from a hub into the cache folder: what to fetch, in which order, with room on the disk.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/blob_download.h"
#include "hub/http.h"
#include "hub/names.h"

namespace espalier::hub {

struct PullOptions {
    RepoRequest what;  // revision empty = main
    std::string cache_dir;
    HttpOptions http;
    std::string proxy;      // in force for the endpoint, for messages
    int n_connections = 4;  // of a large file
    bool is_offline = false;
};

// Told to whoever watches. total_bytes: of all files whose size is known by now.
struct PullWatch {
    std::function<void(std::string_view file, Phase phase, int64_t done_bytes, int64_t total_bytes)> progress;
    std::function<void(std::string_view line)> note;
};

struct PulledFile {
    std::string name;
    std::string blob;
    int64_t bytes = 0;
    int64_t received_bytes = 0;
};

struct PullReport {
    std::string repo;
    std::string revision;
    std::string commit;
    std::string path;  // of the snapshot
    std::vector<PulledFile> files;
    int64_t received_bytes = 0;
};

// Errors: those of hub_error and download_blob; exhausted when the files do not fit on the disk, before anything large is
// fetched; device when offline and the model is not here.
Result<PullReport> pull(const PullOptions& options, const PullWatch& watch);

}  // namespace espalier::hub
