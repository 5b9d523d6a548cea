#include "checkpoint/writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <unordered_set>

#include "base/json.h"
#include "base/mapped_file.h"
#include "checkpoint/names.h"

namespace espalier::checkpoint {
namespace {

constexpr size_t kDataAlignment = 64;
constexpr size_t kBufferBytes = 1 << 20;

int64_t tensor_bytes(const TensorToWrite& tensor) {
    int64_t bytes = static_cast<int64_t>(dtype_bytes(tensor.dtype));
    for (const int64_t extent : tensor.shape) bytes *= extent;
    return bytes;
}

// A file under a temporary name that becomes the real one only when complete. Small pieces are gathered, large ones pass through.
class PendingFile {
public:
    explicit PendingFile(const std::string& path) : path_(path), temporary_(fmt::format("{}.tmp.{}", path, ::getpid())) {
        buffer_.reserve(kBufferBytes);
    }
    ~PendingFile() {
        if (fd_ < 0) return;
        ::close(fd_);
        ::unlink(temporary_.c_str());
    }
    PendingFile(const PendingFile&) = delete;
    PendingFile& operator=(const PendingFile&) = delete;

    Status create() {
        fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        return fd_ < 0 ? Status(error("create")) : Status();
    }
    Status append(std::span<const std::byte> bytes) {
        if (buffer_.size() + bytes.size() > kBufferBytes) TRY(flush());
        if (bytes.size() >= kBufferBytes) return write_all(bytes);
        buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
        return {};
    }
    Status finish(Flush how) {
        TRY(flush());
        if (how == Flush::to_disk && ::fsync(fd_) != 0) return error("flush");
        if (::rename(temporary_.c_str(), path_.c_str()) != 0) return error("rename");
        ::close(fd_);
        fd_ = -1;
        return {};
    }

private:
    Error error(const char* action) const {
        return invalid_input(fmt::format("{}: cannot {}: {}", temporary_, action, std::strerror(errno)));
    }
    Status flush() {
        TRY(write_all(buffer_));
        buffer_.clear();
        return {};
    }
    Status write_all(std::span<const std::byte> bytes) {
        while (!bytes.empty()) {
            const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) return error("write");
            bytes = bytes.subspan(static_cast<size_t>(n));
        }
        return {};
    }

    std::string path_;
    std::string temporary_;
    int fd_ = -1;
    std::vector<std::byte> buffer_;
};

Result<std::string> header_of(const std::string& path, std::span<const TensorToWrite> tensors) {
    Json header = Json::object();
    header["__metadata__"] = {{"format", "pt"}};  // readers of the field insist on it
    std::unordered_set<std::string_view> names;
    int64_t offset = 0;
    for (const auto& tensor : tensors) {
        if (!names.insert(tensor.name).second)
            return invalid_input(fmt::format("{}: two tensors named '{}'", path, printable(tensor.name)));
        const int64_t end = offset + tensor_bytes(tensor);
        header[tensor.name] = {{"dtype", to_string(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
        offset = end;
    }
    auto text = dump_json(header);
    text.append((kDataAlignment - (text.size() + 8) % kDataAlignment) % kDataAlignment, ' ');
    return text;
}

Status append_tensor(PendingFile& file, const TensorToWrite& tensor) {
    const int64_t expected = tensor_bytes(tensor);
    int64_t written = 0;
    TRY(tensor.produce([&](std::span<const std::byte> bytes) -> Status {
        written += static_cast<int64_t>(bytes.size());
        return file.append(bytes);
    }));
    if (written == expected) return {};
    return internal_error(fmt::format("'{}' produced {} bytes, its shape {} needs {}", printable(tensor.name), written,
                                      shape_text(tensor.shape), expected));
}

// Whether the file at `path` begins with this header and has the size of its tensors.
bool is_written(const std::string& path, const std::string& header, std::span<const TensorToWrite> tensors) {
    auto size = static_cast<uintmax_t>(8 + header.size());
    for (const auto& tensor : tensors) size += static_cast<uintmax_t>(tensor_bytes(tensor));
    std::error_code error;
    if (std::filesystem::file_size(path, error) != size || error) return false;
    std::ifstream file(path, std::ios::binary);
    std::string found(8 + header.size(), '\0');
    file.read(found.data(), static_cast<std::streamsize>(found.size()));
    return file.good() && std::string_view(found).substr(8) == header;
}

Status write_file(const std::string& path, std::span<const TensorToWrite> tensors, Flush flush,
                  Existing existing = Existing::replace) {
    TRY_ASSIGN(const auto header, header_of(path, tensors));
    if (existing == Existing::keep && is_written(path, header, tensors)) return {};
    PendingFile file(path);
    TRY(file.create());
    std::byte length[8];
    for (size_t i = 0; i < 8; ++i) length[i] = static_cast<std::byte>(header.size() >> (8 * i));
    TRY(file.append(length));
    TRY(file.append(std::as_bytes(std::span(header))));
    for (const auto& tensor : tensors) TRY(append_tensor(file, tensor));
    return file.finish(flush);
}

}  // namespace

TensorToWrite tensor_from_bytes(std::string name, Dtype dtype, std::vector<int64_t> shape, std::span<const std::byte> bytes) {
    auto copy = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
    return {std::move(name), dtype, std::move(shape), [copy](const ByteSink& sink) { return sink(*copy); }};
}

Status write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors, Flush flush) {
    return write_file(path, tensors, flush);
}

Status write_weights(const std::string& folder, const std::vector<TensorToWrite>& tensors, int64_t shard_bytes_max, Flush flush,
                     Existing existing) {
    const auto base = std::filesystem::path(folder);
    std::vector<size_t> starts = {0};
    int64_t shard_bytes = 0;
    int64_t total_bytes = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
        const int64_t bytes = tensor_bytes(tensors[i]);
        if (shard_bytes > 0 && shard_bytes + bytes > shard_bytes_max) {
            starts.push_back(i);
            shard_bytes = 0;
        }
        shard_bytes += bytes;
        total_bytes += bytes;
    }
    const size_t n_shards = starts.size();
    if (n_shards == 1) return write_file((base / "model.safetensors").string(), tensors, flush, existing);
    starts.push_back(tensors.size());
    Json index = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", Json::object()}};
    for (size_t shard = 0; shard < n_shards; ++shard) {
        const auto name = fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, n_shards);
        const auto part = std::span(tensors).subspan(starts[shard], starts[shard + 1] - starts[shard]);
        TRY(write_file((base / name).string(), part, flush, existing));
        for (const auto& tensor : part) index["weight_map"][tensor.name] = name;
    }
    return write_file_atomic((base / "model.safetensors.index.json").string(), dump_json(index, 1));
}

}  // namespace espalier::checkpoint
