#include "checkpoint/tensor_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/json.h"
#include "checkpoint/names.h"

namespace espalier::checkpoint {
namespace {

constexpr size_t kIndexBytesMax = 64 << 20;
constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";

// Tensor name (as in the file) to shard file name.
using WeightMap = std::map<std::string, std::string, std::less<>>;

Result<WeightMap> read_index(const std::string& path) {
    TRY_ASSIGN(const auto text, read_file(path, kIndexBytesMax));
    TRY_ASSIGN(const auto json, parse_json(text, path, 8));
    if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
        return corrupt_data(fmt::format("{}: expected an object with a 'weight_map' object", path));
    }
    WeightMap map;
    for (const auto& [name, file] : json["weight_map"].items()) {
        if (!file.is_string()) return corrupt_data(fmt::format("{}: weight_map '{}' is not a file name", path, printable(name)));
        TRY(check_shard_name(file.get_ref<const std::string&>(), path));
        map.emplace(name, file.get<std::string>());
    }
    if (map.empty()) return corrupt_data(fmt::format("{}: weight_map is empty", path));
    return map;
}

// Without an index: model.safetensors, or the one file there is.
Result<std::string> find_single_file(const std::string& folder) {
    std::error_code error;
    const auto direct = std::filesystem::path(folder) / kSingleName;
    if (std::filesystem::exists(direct, error)) return direct.string();
    std::vector<std::string> found;
    for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
        if (it->path().extension() == ".safetensors") found.push_back(it->path().filename().string());
    }
    if (found.size() == 1) return (std::filesystem::path(folder) / found[0]).string();
    if (found.empty()) {
        return invalid_input(
            fmt::format("{}: no weights found, expected {} or {}; other formats (.bin, .pth) must be converted to safetensors",
                        folder, kSingleName, kIndexName));
    }
    std::sort(found.begin(), found.end());
    return invalid_input(fmt::format("{}: {} safetensors files ({}, ...) but no {}; fetch the index too", folder, found.size(),
                                     printable(found[0]), kIndexName));
}

Status add_shard(TensorFiles& files, const std::string& path) {
    TRY_ASSIGN(auto mapped, MappedFile::open(path));
    TRY_ASSIGN(auto entries, parse_safetensors(mapped.bytes(), path));
    const int shard = static_cast<int>(files.shards.size());
    for (auto& entry : entries) {
        StoredTensor tensor;
        tensor.name = normalise_name(entry.name);
        tensor.file_name = std::move(entry.name);
        tensor.dtype = dtype_from_name(entry.dtype_name);
        tensor.dtype_name = std::move(entry.dtype_name);
        tensor.shape = std::move(entry.shape);
        tensor.data = mapped.bytes().subspan(entry.begin, entry.end - entry.begin);
        tensor.shard = shard;
        const auto key = tensor.name;
        const auto [place, is_new] = files.tensors.try_emplace(key, std::move(tensor));
        if (!is_new) {
            const auto& first = place->second;
            const std::string first_path = first.shard == shard ? path : files.shards[static_cast<size_t>(first.shard)].path();
            return corrupt_data(fmt::format("'{}' of {} and '{}' of {} are the same tensor; expected one",
                                            printable(first.file_name), first_path, printable(tensor.file_name), path));
        }
    }
    files.shards.push_back(std::move(mapped));
    return {};
}

std::string shard_file_name(const TensorFiles& files, int shard) {
    return std::filesystem::path(files.shards[static_cast<size_t>(shard)].path()).filename().string();
}

// Both directions: every entry of the index is in the shard it names, every tensor of a shard is in the index.
Status check_against_index(const TensorFiles& files, const WeightMap& map, const std::string& index_path) {
    for (const auto& [file_name, shard_name] : map) {
        const auto found = files.tensors.find(normalise_name(file_name));
        if (found == files.tensors.end() || found->second.file_name != file_name) {
            return corrupt_data(fmt::format("{}: '{}' should be in {} but is in no shard", index_path, printable(file_name),
                                            printable(shard_name)));
        }
        if (const auto actual = shard_file_name(files, found->second.shard); actual != shard_name) {
            return corrupt_data(fmt::format("{}: '{}' should be in {} but is in {}", index_path, printable(file_name),
                                            printable(shard_name), printable(actual)));
        }
    }
    if (files.tensors.size() == map.size()) return {};
    for (const auto& [name, tensor] : files.tensors) {
        if (!map.contains(tensor.file_name)) {
            return corrupt_data(fmt::format("{}: '{}' is in {} but not in the index", index_path, printable(tensor.file_name),
                                            printable(shard_file_name(files, tensor.shard))));
        }
    }
    return {};
}

Result<TensorFiles> open_indexed(const std::string& folder, const std::string& index_path) {
    TRY_ASSIGN(const auto map, read_index(index_path));
    std::vector<std::string> names;
    for (const auto& [tensor, file] : map) names.push_back(file);
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    TensorFiles files;
    for (const auto& name : names) TRY(add_shard(files, (std::filesystem::path(folder) / name).string()));
    TRY(check_against_index(files, map, index_path));
    return files;
}

}  // namespace

Status check_shard_name(std::string_view name, std::string_view index_path) {
    const bool is_plain = !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
                          name.find('\\') == std::string_view::npos && name.find('\0') == std::string_view::npos;
    if (is_plain && name.ends_with(".safetensors")) return {};
    return corrupt_data(fmt::format("{}: shard '{}' is refused, expected a plain file name that ends in .safetensors", index_path,
                                    printable(name)));
}

Result<TensorFiles> open_tensor_files(const std::string& folder) {
    const auto index_path = (std::filesystem::path(folder) / kIndexName).string();
    std::error_code error;
    if (std::filesystem::exists(index_path, error)) return open_indexed(folder, index_path);
    TRY_ASSIGN(const auto path, find_single_file(folder));
    TensorFiles files;
    TRY(add_shard(files, path));
    if (files.tensors.empty()) return corrupt_data(fmt::format("{}: holds no tensors", path));
    return files;
}

}  // namespace espalier::checkpoint
