#include "hub/pull.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "base/mapped_file.h"
#include "hub/cache_folder.h"
#include "hub/listing.h"

namespace espalier::hub {
namespace {

constexpr size_t kListingBytesMax = size_t{64} << 20;
constexpr size_t kIndexBytesMax = size_t{64} << 20;
constexpr int kTriesMax = 4;
constexpr auto kFirstPause = std::chrono::milliseconds(250);
constexpr int kHeadsAtOnce = 8;

std::string size_text(int64_t bytes) {
    if (bytes >= int64_t{1} << 30) return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (int64_t{1} << 30));
    return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

struct FileToPull {
    std::string name;
    FileInfo info;
};

class Puller {
public:
    Puller(const PullOptions& options, const PullWatch& watch, HttpSession& session)
        : options_(options), watch_(watch), session_(session), folder_(options.cache_dir, options.what.repo) {
        report_.repo = options.what.repo;
        report_.revision = options.what.revision;
    }

    Result<PullReport> run() {
        TRY_ASSIGN(listing_, fetch_listing());
        report_.commit = listing_.commit;
        report_.path = folder_.snapshot_path(listing_.commit);
        TRY(folder_.create());
        if (!options_.what.file.empty()) {
            TRY(check_listed(options_.what.file));
            TRY(pull_files({options_.what.file}));
        } else {
            // Before anything is fetched: is there something to run at all?
            std::vector<std::string> weights;
            const std::string index = index_file(listing_);
            if (index.empty()) {
                TRY_ASSIGN(weights, unindexed_weights(listing_, report_.repo));
            }
            TRY(pull_files(small_files(listing_)));
            if (!index.empty()) {
                TRY_ASSIGN(const std::string text, read_file(folder_.file_path(report_.commit, index), kIndexBytesMax));
                TRY_ASSIGN(weights, indexed_weights(text, index));
            }
            for (const std::string& name : weights) TRY(check_listed(name));
            TRY(pull_files(weights));
        }
        TRY(folder_.set_ref(report_.revision, report_.commit));
        return std::move(report_);
    }

private:
    Asked asked(const std::string& file) const { return {report_.repo, report_.revision, file, options_.proxy}; }

    std::string file_url(const std::string& file) const {
        return fmt::format("{}/{}/resolve/{}/{}", options_.http.endpoint, report_.repo, report_.commit,
                           percent_encode(file, Slash::keep));
    }

    // The same failure may pass; one to connect at all will not.
    static bool is_worth_another_try(const HttpResult& result) { return is_passing(result) && result.head.status != 0; }

    Result<RepoListing> fetch_listing() {
        HttpRequest request;
        request.url = fmt::format("{}/api/models/{}/revision/{}", options_.http.endpoint, report_.repo,
                                  percent_encode(report_.revision, Slash::encode));
        std::string body;
        HttpResult result;
        for (int i = 0; i < kTriesMax; ++i) {
            if (i > 0) std::this_thread::sleep_for(kFirstPause * (1 << i));
            result = fetch(session_, request, body, kListingBytesMax);
            if (!is_worth_another_try(result)) break;
        }
        if (result.is_stopped) return exhausted(fmt::format("the hub's answer is longer than {}", size_text(kListingBytesMax)));
        if (!result.is_complete()) return hub_error(result, options_.http, asked(""));
        return parse_listing(body);
    }

    Status check_listed(const std::string& file) const {
        const auto& files = listing_.files;
        if (std::find(files.begin(), files.end(), file) != files.end()) return {};
        std::string others;
        int n_shown = 0;
        for (const std::string& name : files) {
            if (name.find('/') != std::string::npos || name.starts_with('.') || ++n_shown > 8) continue;
            others += (others.empty() ? "" : ", ") + printable(name);
        }
        return invalid_input(fmt::format("{} has no file {} at {}; it has {}{}", report_.repo, printable(file), report_.revision,
                                         others.empty() ? "no files" : others, n_shown > 8 ? ", ..." : ""));
    }

    // Asks for several files at a time.
    Result<std::vector<FileToPull>> describe(const std::vector<std::string>& names) {
        std::vector<HttpResult> results(names.size());
        std::vector<size_t> open(names.size());
        std::iota(open.begin(), open.end(), size_t{0});
        for (int i = 0; i < kTriesMax && !open.empty(); ++i) {
            if (i > 0) std::this_thread::sleep_for(kFirstPause * (1 << i));
            for (size_t next = 0; next < open.size() || session_.n_running() > 0;) {
                for (; next < open.size() && session_.n_running() < kHeadsAtOnce; ++next)
                    ask(names[open[next]], results[open[next]]);
                session_.step(200);
            }
            std::erase_if(open, [&](size_t n) { return !is_worth_another_try(results[n]); });
        }
        std::vector<FileToPull> files;
        for (size_t n = 0; n < names.size(); ++n) {
            if (!results[n].is_complete()) return hub_error(results[n], options_.http, asked(names[n]));
            TRY_ASSIGN(FileInfo info, file_info(results[n].head, names[n]));
            if (!info.commit.empty() && info.commit != report_.commit)
                return corrupt_data(fmt::format("{} {}: the hub answers with commit {}, asked for {}", report_.repo, names[n],
                                                printable(info.commit), report_.commit));
            files.push_back({names[n], std::move(info)});
        }
        return files;
    }

    void ask(const std::string& name, HttpResult& result) {
        HttpRequest request;
        request.method = HttpRequest::Method::head;
        request.url = file_url(name);
        session_.add(std::move(request), [&result](HttpResult ended) { result = std::move(ended); });
    }

    Status check_space(const std::vector<FileToPull>& files) const {
        int64_t needed = 0;
        for (const FileToPull& file : files) {
            if (folder_.has_blob(file.info.blob, file.info.bytes)) continue;
            const int64_t missing = std::max<int64_t>(0, file.info.bytes - unfinished_bytes(folder_.blob_path(file.info.blob)));
            if (missing > INT64_MAX - needed) return corrupt_data("the hub announces files of impossible sizes");
            needed += missing;
        }
        struct statvfs disk {};
        if (needed == 0 || ::statvfs(options_.cache_dir.c_str(), &disk) != 0) return {};
        const auto free_bytes = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
        if (needed <= free_bytes) return {};
        return exhausted(fmt::format("{} needs {} and {} has {} free: make room, or set HF_HOME to a folder on another disk",
                                     report_.repo, size_text(needed), options_.cache_dir, size_text(free_bytes)));
    }

    Status pull_files(const std::vector<std::string>& names) {
        TRY_ASSIGN(const std::vector<FileToPull> files, describe(names));
        TRY(check_space(files));
        for (const FileToPull& file : files) total_bytes_ += file.info.bytes;
        for (const FileToPull& file : files) TRY(pull_file(file));
        return {};
    }

    Status pull_file(const FileToPull& file) {
        PulledFile pulled{file.name, file.info.blob, file.info.bytes, 0};
        if (!folder_.has_blob(file.info.blob, file.info.bytes)) {
            const auto on_wait = [&] { watch_.note(fmt::format("another process is fetching {}: waiting for it", file.name)); };
            TRY_ASSIGN(const FileLock lock, folder_.lock_blob(file.info.blob, on_wait));
            if (!folder_.has_blob(file.info.blob, file.info.bytes)) {
                const BlobRequest request{file_url(file.name), file.info, folder_.blob_path(file.info.blob),
                                          options_.n_connections, asked(file.name)};
                const BlobProgress progress = [&](Phase phase, int64_t bytes) {
                    watch_.progress(file.name, phase, done_bytes_ + bytes, total_bytes_);
                };
                TRY_ASSIGN(pulled.received_bytes, download_blob(session_, request, progress));
            }
        }
        done_bytes_ += file.info.bytes;
        report_.received_bytes += pulled.received_bytes;
        report_.files.push_back(pulled);
        return folder_.publish(report_.commit, file.name, file.info.blob);
    }

    const PullOptions& options_;
    const PullWatch& watch_;
    HttpSession& session_;
    RepoFolder folder_;
    RepoListing listing_;
    PullReport report_;
    int64_t done_bytes_ = 0;
    int64_t total_bytes_ = 0;
};

Result<PullReport> find_offline(const PullOptions& options) {
    TRY_ASSIGN(const auto models, list_models(options.cache_dir));
    for (const CachedModel& model : models) {
        if (model.repo != options.what.repo || model.revision != options.what.revision || !model.missing.empty()) continue;
        PullReport report;
        report.repo = model.repo;
        report.revision = model.revision;
        report.commit = model.commit;
        report.path = model.path;
        return report;
    }
    return Error{ErrorCode::device, fmt::format("HF_HUB_OFFLINE is set and {} at {} is not in {}", options.what.repo,
                                                options.what.revision, options.cache_dir)};
}

}  // namespace

Result<PullReport> pull(const PullOptions& given, const PullWatch& watch) {
    PullOptions options = given;
    if (options.what.revision.empty()) options.what.revision = "main";
    if (options.is_offline) return find_offline(options);
    TRY_ASSIGN(const auto session, HttpSession::create(options.http));
    Puller puller(options, watch, *session);
    return puller.run();
}

}  // namespace espalier::hub
