#include "hub/cache_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/json.h"
#include "base/mapped_file.h"
#include "hub/listing.h"
#include "hub/names.h"

namespace espalier::hub {
namespace {

namespace fs = std::filesystem;

constexpr auto kLockPoll = std::chrono::milliseconds(100);
constexpr size_t kRefBytesMax = 256;
constexpr size_t kConfigBytesMax = size_t{16} << 20;
constexpr size_t kIndexBytesMax = size_t{64} << 20;
constexpr const char* kMain = "main";

Status make_folders(const fs::path& folder) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) return invalid_input(fmt::format("{}: cannot make this folder: {}", folder.string(), error.message()));
    return {};
}

// The names of refs below a folder, with slashes.
std::vector<std::string> ref_names(const fs::path& refs) {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::recursive_directory_iterator it(refs, error), end; !error && it != end; it.increment(error)) {
        if (it->is_regular_file(error)) names.push_back(it->path().lexically_relative(refs).string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

std::string model_type(const fs::path& snapshot) {
    const auto text = read_file((snapshot / "config.json").string(), kConfigBytesMax);
    if (!text) return "";
    const auto config = parse_json(*text, "config.json");
    if (!config || !config->is_object()) return "";
    const auto type = config->find("model_type");
    return type != config->end() && type->is_string() ? printable(type->get_ref<const std::string&>()) : "";
}

// What is not there of what the engine needs.
std::string missing_files(const fs::path& snapshot) {
    std::error_code error;
    if (fs::exists(snapshot / "model.safetensors", error)) return "";
    const fs::path index_path = snapshot / "model.safetensors.index.json";
    if (const auto index = read_file(index_path.string(), kIndexBytesMax); index) {
        const auto files = indexed_weights(*index, "model.safetensors.index.json");
        if (!files) return files.error().message;
        const auto n_missing = std::count_if(files->begin(), files->end(),
                                             [&](const std::string& file) { return !fs::exists(snapshot / file, error); });
        return n_missing == 0 ? "" : fmt::format("{} of {} files of weights", n_missing, files->size());
    }
    for (fs::directory_iterator it(snapshot, error), end; !error && it != end; it.increment(error)) {
        if (it->path().extension() == ".safetensors" && fs::exists(it->path(), error)) return "";
    }
    return "weights in safetensors";
}

// Bytes of all files of a snapshot, links followed.
int64_t snapshot_bytes(const fs::path& snapshot) {
    int64_t bytes = 0;
    std::error_code error;
    for (fs::recursive_directory_iterator it(snapshot, error), end; !error && it != end; it.increment(error)) {
        struct stat info {};
        if (::stat(it->path().c_str(), &info) == 0 && S_ISREG(info.st_mode)) bytes += info.st_size;
    }
    return bytes;
}

}  // namespace

Result<FileLock> FileLock::take(const std::string& path, const std::function<void()>& on_wait) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return invalid_input(fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
    FileLock lock(fd);
    bool is_told = false;
    while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return invalid_input(fmt::format("{}: cannot lock: {}", path, std::strerror(errno)));
        if (!is_told) on_wait();
        is_told = true;
        std::this_thread::sleep_for(kLockPoll);
    }
    return lock;
}

FileLock::~FileLock() {
    if (fd_ >= 0) ::close(fd_);
}

RepoFolder::RepoFolder(const std::string& cache_dir, const std::string& repo)
    : root_(cache_dir + "/" + repo_folder(repo)), locks_(cache_dir + "/.locks/" + repo_folder(repo)) {}

Status RepoFolder::create() const {
    for (const std::string& folder : {root_ + "/blobs", root_ + "/snapshots", root_ + "/refs", locks_}) TRY(make_folders(folder));
    return {};
}

std::string RepoFolder::file_path(const std::string& commit, const std::string& file) const {
    return snapshot_path(commit) + "/" + file;
}

bool RepoFolder::has_blob(const std::string& blob, int64_t n_bytes) const {
    struct stat info {};
    return ::stat(blob_path(blob).c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size == n_bytes;
}

Result<FileLock> RepoFolder::lock_blob(const std::string& blob, const std::function<void()>& on_wait) const {
    return FileLock::take(locks_ + "/" + blob + ".lock", on_wait);
}

Status RepoFolder::publish(const std::string& commit, const std::string& file, const std::string& blob) const {
    const fs::path place = file_path(commit, file);
    TRY(make_folders(place.parent_path()));
    std::string target = "../../blobs/" + blob;
    for (auto slashes = std::count(file.begin(), file.end(), '/'); slashes > 0; --slashes) target = "../" + target;
    const std::string temporary = fmt::format("{}.tmp.{}", place.string(), ::getpid());
    ::unlink(temporary.c_str());
    // Some file systems of USB sticks and network shares have no links: there the snapshot holds the file itself.
    const bool is_made =
        ::symlink(target.c_str(), temporary.c_str()) == 0 || ::rename(blob_path(blob).c_str(), temporary.c_str()) == 0;
    if (!is_made || ::rename(temporary.c_str(), place.c_str()) != 0) {
        const int reason = errno;
        ::unlink(temporary.c_str());
        return invalid_input(fmt::format("{}: cannot make this link: {}", place.string(), std::strerror(reason)));
    }
    return {};
}

Status RepoFolder::set_ref(const std::string& revision, const std::string& commit) const {
    if (revision == commit) return {};
    const fs::path path = root_ + "/refs/" + revision;
    TRY(make_folders(path.parent_path()));
    return write_file_atomic(path.string(), commit);
}

std::optional<std::string> RepoFolder::commit_of(const std::string& revision) const {
    if (is_commit(revision)) return revision;
    auto text = read_file(root_ + "/refs/" + revision, kRefBytesMax);
    if (!text) return std::nullopt;
    while (text->ends_with('\n')) text->pop_back();
    if (!is_commit(*text)) return std::nullopt;
    return *text;
}

namespace {

// The models of one repository: a ref each.
void add_models(const fs::path& root, const std::string& cache_dir, std::vector<CachedModel>& models) {
    const auto repo = repo_of_folder(root.filename().string());
    if (!repo) return;
    const RepoFolder folder(cache_dir, *repo);
    std::vector<std::string> revisions = ref_names(root / "refs");
    std::error_code error;
    // A snapshot without a ref was asked for by its commit, or its pull did not end.
    for (fs::directory_iterator it(root / "snapshots", error), end; !error && it != end; it.increment(error)) {
        const std::string commit = it->path().filename().string();
        const bool has_ref = std::any_of(revisions.begin(), revisions.end(),
                                         [&](const std::string& name) { return folder.commit_of(name) == commit; });
        if (!has_ref && is_commit(commit)) revisions.push_back(commit);
    }
    for (const std::string& revision : revisions) {
        const auto commit = folder.commit_of(revision);
        if (!commit || !is_revision(revision)) continue;
        CachedModel model;
        model.repo = *repo;
        model.revision = revision;
        model.commit = *commit;
        model.path = folder.snapshot_path(*commit);
        if (!fs::exists(model.path + "/config.json", error)) continue;
        model.name = revision == kMain ? *repo : *repo + "@" + revision;
        model.type = model_type(model.path);
        model.missing = missing_files(model.path);
        model.bytes = snapshot_bytes(model.path);
        struct stat info {};
        if (::stat(model.path.c_str(), &info) == 0) model.fetched_s = info.st_mtime;
        models.push_back(std::move(model));
    }
}

}  // namespace

Result<std::vector<CachedModel>> list_models(const std::string& cache_dir) {
    std::vector<CachedModel> models;
    std::error_code error;
    fs::directory_iterator it(cache_dir, error);
    if (error == std::errc::no_such_file_or_directory) return models;
    for (const fs::directory_iterator end; !error && it != end; it.increment(error)) add_models(it->path(), cache_dir, models);
    if (error) return invalid_input(fmt::format("{}: cannot read this folder: {}", cache_dir, error.message()));
    std::sort(models.begin(), models.end(), [](const CachedModel& a, const CachedModel& b) { return a.name < b.name; });
    return models;
}

std::optional<CachedModel> find_model(const std::vector<CachedModel>& models, const std::string& name) {
    const CachedModel* found = nullptr;
    for (const CachedModel& model : models) {
        if (model.name == name || model.repo + "@" + model.revision == name) return model;
        if (!model.name.ends_with("/" + name)) continue;
        if (found != nullptr) return std::nullopt;
        found = &model;
    }
    return found != nullptr ? std::optional(*found) : std::nullopt;
}

std::optional<std::string> repo_of_snapshot(const std::string& path) {
    std::error_code error;
    const fs::path whole = fs::absolute(path, error).lexically_normal();
    const fs::path folder = whole.has_filename() ? whole : whole.parent_path();
    if (!is_commit(folder.filename().string()) || folder.parent_path().filename() != "snapshots") return std::nullopt;
    return repo_of_folder(folder.parent_path().parent_path().filename().string());
}

}  // namespace espalier::hub
