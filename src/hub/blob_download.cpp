#include "hub/blob_download.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <vector>

#include "hub/digest.h"
#include "hub/names.h"

namespace espalier::hub {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kChunkLeast = 4 * kMiB;
constexpr int64_t kChunkMost = 64 * kMiB;  // a request each: hubs count requests
constexpr int64_t kStateEvery = kMiB;      // of a chunk between two entries in the state file
constexpr int kFailuresMax = 5;            // in a row without a byte
constexpr auto kFirstPause = std::chrono::milliseconds(250);
constexpr int kStepMs = 100;

const char* kDataSuffix = ".espalier-part";
const char* kStateSuffix = ".espalier-state";

std::optional<int64_t> parse_number(std::string_view text) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || text.empty() || value < 0) return std::nullopt;
    return value;
}

class File {
public:
    File() = default;
    ~File() {
        if (fd_ >= 0) ::close(fd_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    Status open(const std::string& path) {
        path_ = path;
        fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (fd_ < 0) return invalid_input(fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
        return {};
    }
    Status write(const void* data, size_t n_bytes, int64_t offset) {
        const auto* bytes = static_cast<const char*>(data);
        while (n_bytes > 0) {
            const ssize_t n = ::pwrite(fd_, bytes, n_bytes, offset);
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) return write_error(n < 0 ? errno : ENOSPC);
            bytes += n;
            offset += n;
            n_bytes -= static_cast<size_t>(n);
        }
        return {};
    }
    bool read(void* data, size_t n_bytes) const { return ::pread(fd_, data, n_bytes, 0) == static_cast<ssize_t>(n_bytes); }
    int64_t size() const {
        struct stat info {};
        return ::fstat(fd_, &info) == 0 ? info.st_size : 0;
    }
    Status resize(int64_t n_bytes) {
        if (::ftruncate(fd_, n_bytes) != 0) return write_error(errno);
        return {};
    }
    Status sync() {
        if (::fsync(fd_) != 0) return write_error(errno);
        return {};
    }

private:
    Error write_error(int reason) const {
        const bool is_full = reason == ENOSPC || reason == EDQUOT || reason == EFBIG;
        if (!is_full) return invalid_input(fmt::format("{}: cannot write: {}", path_, std::strerror(reason)));
        return exhausted(
            fmt::format("{}: cannot write: {}; make room and run the same command again, it goes on where this one "
                        "ended",
                        path_, std::strerror(reason)));
    }
    std::string path_;
    int fd_ = -1;
};

struct Chunk {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t done = 0;
    int64_t recorded = 0;  // of done, in the state file
    int n_failures = 0;
    bool is_running = false;
    Clock::time_point not_before;
    bool is_complete() const { return begin + done == end; }
};

struct StateHeader {
    char magic[8] = {'E', 'S', 'P', 'P', 'U', 'L', 'L', '1'};
    int64_t bytes = 0;
    int64_t chunk_bytes = 0;
};

class Download {
public:
    Download(HttpSession& session, const BlobRequest& request, const BlobProgress& progress)
        : session_(session), request_(request), progress_(progress) {}

    Result<int64_t> run() {
        TRY(data_.open(request_.path + kDataSuffix));
        TRY(state_.open(request_.path + kStateSuffix));
        if (!load_state()) TRY(start_afresh());
        while (!is_complete()) {
            start_chunks();
            session_.step(kStepMs);
            progress_(Phase::fetching, bytes_done());
            if (failure_) session_.cancel_all();
            if (failure_) return *failure_;
            if (is_cut_refused_) TRY(start_uncut());
        }
        TRY(check());
        return n_received_;
    }

private:
    bool is_complete() const {
        return std::all_of(chunks_.begin(), chunks_.end(), [](const Chunk& chunk) { return chunk.is_complete(); });
    }
    int64_t bytes_done() const {
        int64_t sum = 0;
        for (const Chunk& chunk : chunks_) sum += chunk.done;
        return sum;
    }

    void cut(int64_t chunk_bytes) {
        chunks_.clear();
        for (int64_t begin = 0; begin < request_.info.bytes; begin += chunk_bytes) {
            Chunk& chunk = chunks_.emplace_back();
            chunk.begin = begin;
            chunk.end = std::min(begin + chunk_bytes, request_.info.bytes);
        }
    }

    // False unless both files fit this blob and each other.
    bool load_state() {
        StateHeader found;
        const StateHeader fresh;
        if (!state_.read(&found, sizeof found) || std::memcmp(found.magic, fresh.magic, sizeof fresh.magic) != 0) return false;
        if (found.bytes != request_.info.bytes || found.chunk_bytes < kChunkLeast) return false;
        cut(found.chunk_bytes);
        std::vector<int64_t> entries(chunks_.size() + 3);  // the header is three of them
        if (!state_.read(entries.data(), entries.size() * sizeof(int64_t))) return false;
        const int64_t n_data = data_.size();
        for (size_t i = 0; i < chunks_.size(); ++i) {
            Chunk& chunk = chunks_[i];
            chunk.done = entries[i + 3];
            if (chunk.done < 0 || chunk.done > chunk.end - chunk.begin) return false;
            if (chunk.done > 0 && chunk.begin + chunk.done > n_data) return false;
            chunk.recorded = chunk.done;
        }
        return true;
    }

    Status start_afresh() {
        const int64_t sixteenth = (request_.info.bytes / 16 + kMiB - 1) / kMiB * kMiB;
        const int64_t chunk_bytes = std::clamp(sixteenth, kChunkLeast, kChunkMost);
        cut(chunk_bytes);
        TRY(data_.resize(0));
        TRY(state_.resize(0));
        StateHeader header;
        header.bytes = request_.info.bytes;
        header.chunk_bytes = chunk_bytes;
        TRY(state_.write(&header, sizeof header, 0));
        return state_.resize(static_cast<int64_t>(sizeof header + chunks_.size() * sizeof(int64_t)));
    }

    // The store does not send parts: one connection, from the start, nothing to go on from.
    Status start_uncut() {
        session_.cancel_all();
        is_cut_refused_ = false;
        is_uncut_ = true;
        cut(std::max<int64_t>(request_.info.bytes, 1));
        TRY(data_.resize(0));
        return state_.resize(0);
    }

    void start_chunks() {
        const auto now = Clock::now();
        for (Chunk& chunk : chunks_) {
            if (session_.n_running() >= request_.n_connections) return;
            if (chunk.is_running || chunk.is_complete() || now < chunk.not_before) continue;
            start(chunk);
        }
    }

    void start(Chunk& chunk) {
        HttpRequest http;
        http.url = request_.url;
        if (is_uncut_) {
            chunk.done = 0;
        } else if (chunks_.size() > 1 || chunk.done > 0) {
            http.first_byte = chunk.begin + chunk.done;
            http.last_byte = chunk.end - 1;
        }
        const int64_t first = chunk.begin + chunk.done;
        http.on_head = [this, first](const ResponseHead& head) { return accept(head, first); };
        http.on_body = [this, &chunk](std::string_view bytes) { return write(chunk, bytes); };
        chunk.is_running = true;
        const int64_t done_before = chunk.done;
        session_.add(std::move(http),
                     [this, &chunk, done_before](const HttpResult& result) { finish(chunk, done_before, result); });
    }

    // The answer's head is that of the bytes asked for.
    bool accept(const ResponseHead& head, int64_t first) {
        const int64_t total = request_.info.bytes;
        const std::string blob = blob_of(head.hub);
        bool is_same = blob.empty() || blob == request_.info.blob;
        if (head.status == 206) {
            const auto range = parse_content_range(header(head.headers, "content-range"));
            is_same = is_same && range && range->first == first && (range->total == total || range->total < 0);
        } else {
            const auto length = parse_number(header(head.headers, "content-length"));
            is_same = is_same && (!length || *length == total);
            if (is_same && (first > 0 || (chunks_.size() > 1 && !is_uncut_))) {
                is_cut_refused_ = true;
                return false;
            }
        }
        if (!is_same) fail(changed());
        return is_same;
    }

    bool write(Chunk& chunk, std::string_view bytes) {
        const int64_t room = chunk.end - chunk.begin - chunk.done;
        if (static_cast<int64_t>(bytes.size()) > room) {
            fail(changed());
            return false;
        }
        if (const Status status = data_.write(bytes.data(), bytes.size(), chunk.begin + chunk.done); !status) {
            fail(status.error());
            return false;
        }
        chunk.done += static_cast<int64_t>(bytes.size());
        chunk.n_failures = 0;
        n_received_ += static_cast<int64_t>(bytes.size());
        if (chunk.done - chunk.recorded >= kStateEvery) record(chunk);
        return !failure_;
    }

    void record(Chunk& chunk) {
        if (is_uncut_) return;
        const auto index = static_cast<int64_t>(&chunk - chunks_.data());
        const Status status = state_.write(&chunk.done, sizeof chunk.done, (3 + index) * static_cast<int64_t>(sizeof(int64_t)));
        if (!status) fail(status.error());
        chunk.recorded = chunk.done;
    }

    void finish(Chunk& chunk, int64_t done_before, const HttpResult& result) {
        chunk.is_running = false;
        record(chunk);
        if (failure_ || is_cut_refused_ || chunk.is_complete()) return;
        const bool is_short = result.is_complete();  // fewer bytes than promised
        if (!is_short && !is_passing(result)) {
            fail(result.head.status == 416 ? changed() : hub_error(result, session_.options(), request_.asked));
            return;
        }
        if (is_uncut_ && chunk.done > done_before) ++n_restarts_;
        if (++chunk.n_failures > kFailuresMax || n_restarts_ > kFailuresMax) {
            fail(hub_error(result, session_.options(), request_.asked));
            return;
        }
        chunk.not_before = Clock::now() + kFirstPause * (1 << chunk.n_failures) / 2;
    }

    void fail(Error error) {
        if (!failure_) failure_ = std::move(error);
    }

    Error changed() const {
        return corrupt_data(fmt::format(
            "{} {}: the hub no longer has the file that it announced (it changed meanwhile); run the same command again",
            request_.asked.repo, request_.asked.file));
    }

    Status check() {
        TRY(data_.sync());
        const Checksum kind = checksum_of(request_.info.blob);
        const std::string data_path = request_.path + kDataSuffix;
        const auto report = [this](int64_t bytes) { progress_(Phase::checking, bytes); };
        TRY_ASSIGN(const std::string digest, digest_file(data_path, kind, request_.info.bytes, report));
        const std::string state_path = request_.path + kStateSuffix;
        if (kind != Checksum::none && digest != request_.info.blob) {
            ::unlink(data_path.c_str());
            ::unlink(state_path.c_str());
            return corrupt_data(
                fmt::format("{} {}: {} is {}, but the hub announces {}: what came is damaged and was removed; run the "
                            "same command again",
                            request_.asked.repo, request_.asked.file, to_string(kind), digest, request_.info.blob));
        }
        if (::rename(data_path.c_str(), request_.path.c_str()) != 0)
            return invalid_input(fmt::format("{}: cannot rename: {}", request_.path, std::strerror(errno)));
        ::unlink(state_path.c_str());
        return {};
    }

    HttpSession& session_;
    const BlobRequest& request_;
    const BlobProgress& progress_;
    File data_;
    File state_;
    std::vector<Chunk> chunks_;
    std::optional<Error> failure_;
    bool is_cut_refused_ = false;  // a part was asked for and the whole came
    bool is_uncut_ = false;
    int n_restarts_ = 0;
    int64_t n_received_ = 0;
};

}  // namespace

std::optional<ContentRange> parse_content_range(std::string_view text) {
    if (!text.starts_with("bytes ")) return std::nullopt;
    text.remove_prefix(6);
    const size_t dash = text.find('-');
    const size_t slash = text.find('/');
    if (dash == std::string_view::npos || slash == std::string_view::npos || dash > slash) return std::nullopt;
    const auto first = parse_number(text.substr(0, dash));
    const auto last = parse_number(text.substr(dash + 1, slash - dash - 1));
    const std::string_view total_text = text.substr(slash + 1);
    const auto total = total_text == "*" ? std::optional<int64_t>(-1) : parse_number(total_text);
    if (!first || !last || !total || *first > *last || (*total >= 0 && *last >= *total)) return std::nullopt;
    return ContentRange{*first, *last, *total};
}

std::string blob_of(const Headers& headers) {
    std::string_view etag = header(headers, "x-linked-etag");
    if (etag.empty()) etag = header(headers, "etag");
    if (etag.starts_with("W/")) etag.remove_prefix(2);
    if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') etag = etag.substr(1, etag.size() - 2);
    return is_blob_name(etag) ? std::string(etag) : std::string();
}

Result<FileInfo> file_info(const ResponseHead& head, std::string_view file) {
    FileInfo info;
    const bool is_linked = !header(head.hub, "x-linked-etag").empty();
    info.blob = is_linked ? blob_of(head.hub) : blob_of(head.headers);
    if (info.blob.empty())
        return corrupt_data(
            fmt::format("{}: the hub's answer has no usable ETag or X-Linked-Etag; is this a Hugging Face "
                        "compatible hub?",
                        file));
    std::string_view length = header(head.hub, "x-linked-size");
    if (!is_linked || length.empty()) length = header(head.headers, "content-length");
    const auto bytes = parse_number(length);
    if (!bytes) return corrupt_data(fmt::format("{}: the hub does not say how long it is", file));
    info.bytes = *bytes;
    info.commit = header(head.hub, "x-repo-commit");
    return info;
}

Result<int64_t> download_blob(HttpSession& session, const BlobRequest& request, const BlobProgress& progress) {
    Download download(session, request, progress);
    return download.run();
}

int64_t unfinished_bytes(const std::string& blob_path) {
    struct stat info {};
    return ::stat((blob_path + kDataSuffix).c_str(), &info) == 0 ? static_cast<int64_t>(info.st_blocks) * 512 : 0;
}

}  // namespace espalier::hub
