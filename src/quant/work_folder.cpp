#include "quant/work_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "base/mapped_file.h"

namespace espalier::quant {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kVersion = 1;
constexpr size_t kProgressBytesMax = 16 << 20;
constexpr const char* kProgressName = "progress.json";

// Files under the temporary names that writers use: left behind by a run that was killed.
void remove_partial_files(const std::string& folder) {
    std::error_code error;
    std::vector<fs::path> partial;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
        if (entry.path().filename().string().find(".tmp.") != std::string::npos) partial.push_back(entry.path());
    }
    for (const fs::path& path : partial) fs::remove(path, error);
}

// True for what a run leaves that was killed before it recorded its first step: the work folder and nothing else.
bool holds_only_a_start(const std::string& folder) {
    std::error_code error;
    int n_entries = 0;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
        if (entry.path().filename() != ".quantize") return false;
        ++n_entries;
    }
    return n_entries == 1;
}

}  // namespace

Result<WorkFolder> WorkFolder::open(const std::string& destination, const Json& key, bool resume) {
    WorkFolder work(destination, key);
    std::error_code error;
    if (fs::exists(work.path(kProgressName), error)) {
        if (!resume) {
            return invalid_input(
                fmt::format("{} holds an unfinished run; go on with --resume, or remove the folder", destination));
        }
        TRY(work.load());
        remove_partial_files(destination);
        return work;
    }
    if (holds_only_a_start(destination)) fs::remove_all(fs::path(destination) / ".quantize", error);
    if (fs::exists(destination, error) && !fs::is_empty(destination, error)) {
        return invalid_input(fmt::format("{} {} and is not an empty folder; choose another destination", destination,
                                         resume ? "holds no unfinished run" : "exists"));
    }
    fs::create_directories(fs::path(destination) / ".quantize", error);
    if (error) return invalid_input(fmt::format("{}: cannot create: {}", destination, error.message()));
    TRY(work.save());
    return work;
}

Status WorkFolder::load() {
    TRY_ASSIGN(const std::string text, read_file(path(kProgressName), kProgressBytesMax));
    TRY_ASSIGN(const Json json, parse_json(text, path(kProgressName)));
    const auto damaged = [&] {
        return corrupt_data(fmt::format("{}: damaged; remove {} and start again", path(kProgressName), destination_));
    };
    if (!json.is_object() || !json.contains("version") || json["version"] != kVersion || !json.contains("key")) return damaged();
    if (json["key"] != key_) {
        return invalid_input(
            fmt::format("{} holds an unfinished run with another source, other texts or other options; repeat those, "
                        "or remove the folder",
                        destination_));
    }
    const auto flag = [&](const char* name, bool& value) {
        const auto found = json.find(name);
        if (found == json.end() || !found->is_boolean()) return false;
        value = found->get<bool>();
        return true;
    };
    const auto layers = json.find("layers_done");
    const auto maxima = json.find("maxima");
    if (!flag("final_done", progress_.final_done) || !flag("mtp_done", progress_.mtp_done) ||
        !flag("is_written", progress_.is_written) || layers == json.end() || !layers->is_number_integer() || *layers < -1 ||
        *layers > 1'000'000 || maxima == json.end() || !maxima->is_object())
        return damaged();
    progress_.layers_done = layers->get<int32_t>();
    progress_.maxima = Maxima::from_json(*maxima);
    return {};
}

Status WorkFolder::save() const {
    const Json json = {{"version", kVersion},
                       {"key", key_},
                       {"layers_done", progress_.layers_done},
                       {"final_done", progress_.final_done},
                       {"mtp_done", progress_.mtp_done},
                       {"is_written", progress_.is_written},
                       {"maxima", progress_.maxima.to_json()}};
    return write_file_atomic(path(kProgressName), dump_json(json, 1));
}

Result<RowFile> WorkFolder::layer_rows(int32_t layer, int64_t width) const {
    return RowFile::open(path(layer % 2 == 0 ? "rows-0" : "rows-1"), width);
}

Result<RowFile> WorkFolder::final_rows(int64_t width) const {
    return RowFile::open(path("rows-final"), width);
}

Result<RowFile> WorkFolder::quantised_rows(int32_t layer, int64_t width) const {
    return RowFile::open(path(layer % 2 == 0 ? "quantised-0" : "quantised-1"), width);
}

void WorkFolder::remove() const {
    std::error_code ignored;
    // Renamed away first: a run killed in the middle of this leaves a complete result.
    const fs::path done = fs::path(destination_).lexically_normal().string() + fmt::format(".quantize-done.{}", ::getpid());
    fs::rename(fs::path(destination_) / ".quantize", done, ignored);
    fs::remove_all(done, ignored);
}

}  // namespace espalier::quant
