#include "checkpoint/gguf_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <unordered_set>

#include "checkpoint/names.h"

namespace espalier::checkpoint {
namespace {

constexpr int64_t kPartsMax = 9999;

// "model-00002-of-00003.gguf": the text before the number, and how many parts there are.
struct SplitName {
    std::string prefix;
    int64_t n_parts = 0;
};

std::optional<SplitName> parse_split_name(const std::string& path) {
    constexpr size_t kTail = std::string_view("-00001-of-00003.gguf").size();
    if (path.size() <= kTail || !path.ends_with(".gguf")) return std::nullopt;
    const std::string tail = path.substr(path.size() - kTail);
    const auto is_number = [&](size_t begin) {
        return std::all_of(tail.begin() + static_cast<std::ptrdiff_t>(begin),
                           tail.begin() + static_cast<std::ptrdiff_t>(begin + 5),
                           [](unsigned char c) { return std::isdigit(c) != 0; });
    };
    if (tail[0] != '-' || !is_number(1) || tail.substr(6, 4) != "-of-" || !is_number(10)) return std::nullopt;
    const int64_t n_parts = std::stoi(tail.substr(10, 5));
    const int64_t part = std::stoi(tail.substr(1, 5));
    if (n_parts < 1 || n_parts > kPartsMax || part < 1 || part > n_parts) return std::nullopt;
    return SplitName{path.substr(0, path.size() - kTail), n_parts};
}

// An entry of the metadata as an integer; `otherwise` when it is not there.
Result<int64_t> integer_or(const GgufMetadata& metadata, std::string_view key, int64_t otherwise, std::string_view what) {
    const GgufValue* found = find_entry(metadata, key);
    if (found == nullptr) return otherwise;
    const auto value = found->single_integer();
    if (!value || *value < 0)
        return corrupt_data(fmt::format("{}: {} is {}, expected a whole number", what, key, found->describe()));
    return *value;
}

// Whether a part says of itself what its name says.
Status check_part(const GgufMetadata& metadata, const std::string& path, int64_t part, int64_t n_parts) {
    TRY_ASSIGN(const int64_t n_said, integer_or(metadata, "split.count", 1, path));
    TRY_ASSIGN(const int64_t part_said, integer_or(metadata, "split.no", 0, path));
    if (std::max<int64_t>(n_said, 1) == n_parts && part_said == part) return {};
    return corrupt_data(
        fmt::format("{}: says that it is part {} of {} (split.no, split.count), expected part {} of {}; give the file "
                    "its own name back, or fetch the parts again",
                    path, part_said + 1, n_said, part + 1, n_parts));
}

}  // namespace

bool is_gguf(const std::string& path) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) return false;
    if (path.ends_with(".gguf")) return true;
    char magic[4] = {};
    std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
    return has_gguf_magic(std::as_bytes(std::span(magic)));
}

std::vector<std::string> gguf_paths(const std::string& path) {
    const auto split = parse_split_name(path);
    if (!split) return {path};
    std::vector<std::string> paths;
    for (int64_t part = 1; part <= split->n_parts; ++part)
        paths.push_back(fmt::format("{}-{:05d}-of-{:05d}.gguf", split->prefix, part, split->n_parts));
    return paths;
}

Result<std::string> gguf_in_folder(const std::string& path) {
    const std::filesystem::path folder(path);
    std::error_code error;
    if (!std::filesystem::is_directory(folder, error) || std::filesystem::exists(folder / "config.json", error)) return path;
    std::vector<std::string> models;
    for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
        const std::string file = it->path().string();
        if (!is_gguf(file) || it->path().filename().string().starts_with("mmproj")) continue;
        if (gguf_paths(file).front() == file) models.push_back(file);  // a split model counts once
    }
    if (models.empty()) return path;
    if (models.size() == 1) return models[0];
    std::sort(models.begin(), models.end());
    return invalid_input(fmt::format("{}: {} GGUF models ({}, {}{}); give one of the files", path, models.size(),
                                     printable(models[0]), printable(models[1]), models.size() > 2 ? ", ..." : ""));
}

Result<GgufFiles> open_gguf_files(const std::string& path) {
    const auto paths = gguf_paths(path);
    const auto n_parts = static_cast<int64_t>(paths.size());
    GgufFiles files;
    std::unordered_set<std::string> names;
    for (int64_t part = 0; part < n_parts; ++part) {
        const std::string& own = paths[static_cast<size_t>(part)];
        std::error_code error;
        if (n_parts > 1 && !std::filesystem::exists(own, error)) {
            return invalid_input(
                fmt::format("{}: part {} of {} is missing; fetch it into the same folder", own, part + 1, n_parts));
        }
        TRY_ASSIGN(auto mapped, MappedFile::open(own));
        TRY_ASSIGN(auto parsed, parse_gguf(mapped.bytes(), own));
        TRY(check_part(parsed.metadata, own, part, n_parts));
        for (auto& tensor : parsed.tensors) {
            if (!names.insert(tensor.name).second)
                return corrupt_data(fmt::format("{}: tensor '{}' is in an earlier part too", own, printable(tensor.name)));
            files.tensors.push_back(std::move(tensor));
        }
        if (part == 0) files.metadata = std::move(parsed.metadata);
        files.shards.push_back(std::move(mapped));
    }
    const auto n_found = static_cast<int64_t>(files.tensors.size());
    TRY_ASSIGN(const int64_t n_expected, integer_or(files.metadata, "split.tensors.count", n_found, paths[0]));
    if (n_expected != n_found) {
        return corrupt_data(fmt::format("{}: split.tensors.count is {}, the {} parts hold {}; fetch them again", paths[0],
                                        n_expected, n_parts, n_found));
    }
    if (n_found == 0) return corrupt_data(fmt::format("{}: holds no tensors", path));
    return files;
}

}  // namespace espalier::checkpoint
