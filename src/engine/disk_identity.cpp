#include "engine/disk_identity.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/mapped_file.h"
#include "checkpoint/gguf_files.h"
#include "engine/load.h"

namespace espalier::engine {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSampleBytes = 4096;
constexpr size_t kSamples = 256;

// Of a file: name, size, time of the last change (samples alone would miss new scales between them), samples spread evenly.
Status add_file(const fs::path& path, std::vector<std::byte>& out) {
    TRY_ASSIGN(const MappedFile file, MappedFile::open(path.string()));
    const std::span<const std::byte> bytes = file.bytes();
    std::error_code error;
    const auto changed = fs::last_write_time(path, error).time_since_epoch().count();
    if (error) return invalid_input(fmt::format("{}: {}", path.string(), error.message()));
    const std::string head = fmt::format("{} {} {}\n", path.filename().string(), bytes.size(), changed);
    const auto head_bytes = std::as_bytes(std::span(head));
    out.insert(out.end(), head_bytes.begin(), head_bytes.end());
    const size_t step = std::max(kSampleBytes, bytes.size() / kSamples);
    for (size_t at = 0; at < bytes.size(); at += step) {
        const auto sample = bytes.subspan(at, std::min(kSampleBytes, bytes.size() - at));
        out.insert(out.end(), sample.begin(), sample.end());
    }
    const auto last = bytes.last(std::min(kSampleBytes, bytes.size()));
    out.insert(out.end(), last.begin(), last.end());
    return {};
}

Result<std::string> hash_weights(const std::string& path) {
    std::vector<fs::path> files;
    std::error_code error;
    if (fs::is_directory(path, error)) {
        for (const auto& entry : fs::directory_iterator(path, error)) {
            const fs::path& file = entry.path();
            if (file.extension() == ".safetensors" || file.extension() == ".gguf" || file.filename() == "config.json")
                files.push_back(file);
        }
    } else {
        for (const std::string& part : checkpoint::gguf_paths(path)) files.emplace_back(part);
    }
    if (error) return invalid_input(fmt::format("{}: {}", path, error.message()));
    std::sort(files.begin(), files.end());
    std::vector<std::byte> bytes;
    for (const fs::path& file : files) TRY(add_file(file, bytes));
    return fmt::format("{:016x}", cache::disk_checksum(bytes));
}

Result<std::string> hash_program() {
    TRY_ASSIGN(const MappedFile program, MappedFile::open("/proc/self/exe"));
    return fmt::format("{:016x}", cache::disk_checksum(program.bytes()));
}

}  // namespace

Result<cache::DiskIdentity> disk_identity(const std::string& path, const model::Model& model, const std::string& template_hash) {
    cache::DiskIdentity identity;
    fs::path name = fs::path(path).lexically_normal();
    if (!name.has_filename()) name = name.parent_path();
    identity.model = name.filename().string();
    TRY_ASSIGN(identity.model_hash, hash_weights(path));
    identity.template_hash = template_hash;
    identity.acts = to_string(model.acts());
    identity.kv_type = to_string(model.state_shape().kv);
    TRY_ASSIGN(const std::string program, hash_program());
    identity.kernels = fmt::format("{} {} glibc {}", kernels::to_string(model.kernels().isa), program, gnu_get_libc_version());
    return identity;
}

}  // namespace espalier::engine
