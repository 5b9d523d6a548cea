// Models on this machine, in the folder that the Hugging Face tools share:
//
//   CACHE/models--ORG--NAME/blobs/CHECKSUM            the bytes of a file, once
//   CACHE/models--ORG--NAME/snapshots/COMMIT/FILE     a link to a blob
//   CACHE/models--ORG--NAME/refs/REVISION             the commit that a branch or tag was at when it was fetched
//   CACHE/.locks/models--ORG--NAME/CHECKSUM.lock      held with flock by whoever writes that blob
//
// What those tools have fetched is found here and the other way round. Layout: huggingface_hub's documentation of its cache.
// A blob gets its name when it is complete and checked; a ref is written when all files of its snapshot are there.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace espalier::hub {

// An flock that ends with this object, or with the process.
class FileLock {
public:
    // Waits for it; on_wait is called once, before waiting. Errors: invalid_input when the file cannot be made.
    static Result<FileLock> take(const std::string& path, const std::function<void()>& on_wait);
    FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    FileLock& operator=(FileLock&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~FileLock();

private:
    explicit FileLock(int fd) : fd_(fd) {}
    int fd_ = -1;
};

// The places of one repository. Names given must have passed names.h.
class RepoFolder {
public:
    RepoFolder(const std::string& cache_dir, const std::string& repo);

    // Makes the folders. Errors: invalid_input.
    Status create() const;
    std::string blob_path(const std::string& blob) const { return root_ + "/blobs/" + blob; }
    std::string snapshot_path(const std::string& commit) const { return root_ + "/snapshots/" + commit; }
    std::string file_path(const std::string& commit, const std::string& file) const;
    // A complete blob of n_bytes is there.
    bool has_blob(const std::string& blob, int64_t n_bytes) const;
    Result<FileLock> lock_blob(const std::string& blob, const std::function<void()>& on_wait) const;
    // Makes snapshots/COMMIT/FILE refer to the blob, or be it where there are no links.
    Status publish(const std::string& commit, const std::string& file, const std::string& blob) const;
    Status set_ref(const std::string& revision, const std::string& commit) const;
    // The commit of a revision: itself if it is one, else what its ref says.
    std::optional<std::string> commit_of(const std::string& revision) const;

private:
    std::string root_;
    std::string locks_;
};

struct CachedModel {
    std::string name;  // as MODEL is given: "ORG/NAME", "ORG/NAME@REVISION" for another revision than main
    std::string repo;
    std::string revision;
    std::string commit;
    std::string path;
    std::string type;     // "model_type" of config.json
    std::string missing;  // what a usable model lacks, empty if nothing
    int64_t bytes = 0;
    int64_t fetched_s = 0;  // unix seconds
};

// Every repository in the cache with a config.json, by name. A folder that does not exist is empty. Errors: invalid_input when
// it cannot be read.
Result<std::vector<CachedModel>> list_models(const std::string& cache_dir);
// The model of that name. NAME alone is enough where it is the only one.
std::optional<CachedModel> find_model(const std::vector<CachedModel>& models, const std::string& name);
// "ORG/NAME" for a folder that lies in a cache as snapshots/COMMIT, else nothing.
std::optional<std::string> repo_of_snapshot(const std::string& path);

}  // namespace espalier::hub
