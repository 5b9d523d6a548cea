#include "hub/listing.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "hub/names.h"

namespace espalier::hub {
namespace {

constexpr size_t kFilesMax = 100'000;
constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kSmall[] = {"config.json",
                                       "generation_config.json",
                                       "hf_quant_config.json",
                                       "tokenizer.json",
                                       "tokenizer_config.json",
                                       "chat_template.jinja",
                                       "chat_template.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "LICENSE",
                                       kIndexName};

bool has(const RepoListing& listing, std::string_view name) {
    return std::find(listing.files.begin(), listing.files.end(), name) != listing.files.end();
}

bool is_weights(std::string_view name) {
    return name.ends_with(".safetensors") && name.find('/') == std::string_view::npos;
}

}  // namespace

Result<RepoListing> parse_listing(std::string_view json) {
    TRY_ASSIGN(const Json body, parse_json(json, "the hub's answer", 64));
    const auto bad = [](std::string_view what) {
        return corrupt_data(fmt::format("the hub's answer has no {}; is this a Hugging Face compatible hub?", what));
    };
    RepoListing listing;
    if (!body.is_object() || !body.contains("sha") || !body["sha"].is_string()) return bad("\"sha\" of a commit");
    listing.commit = body["sha"].get<std::string>();
    if (!is_commit(listing.commit)) return bad("\"sha\" of 40 hexadecimal digits");
    const auto siblings = body.find("siblings");
    if (siblings == body.end() || !siblings->is_array()) return bad("list of files (\"siblings\")");
    if (siblings->size() > kFilesMax) return exhausted(fmt::format("the repository has more than {} files", kFilesMax));
    for (const Json& sibling : *siblings) {
        if (!sibling.is_object() || !sibling.contains("rfilename") || !sibling["rfilename"].is_string())
            return bad("\"rfilename\" of every file");
        const auto& name = sibling["rfilename"].get_ref<const std::string&>();
        if (!is_file_name(name)) return corrupt_data(fmt::format("the hub lists a file \"{}\": refused", printable(name)));
        listing.files.push_back(name);
    }
    return listing;
}

std::vector<std::string> small_files(const RepoListing& listing) {
    std::vector<std::string> files;
    for (const std::string_view name : kSmall) {
        // Vocabulary and merges are parts of tokenizer.json.
        const bool is_part = (name == "vocab.json" || name == "merges.txt") && has(listing, "tokenizer.json");
        if (has(listing, name) && !is_part) files.emplace_back(name);
    }
    return files;
}

std::string index_file(const RepoListing& listing) {
    return has(listing, kIndexName) ? std::string(kIndexName) : std::string();
}

Result<std::vector<std::string>> unindexed_weights(const RepoListing& listing, std::string_view repo) {
    if (has(listing, kSingleName)) return std::vector<std::string>{std::string(kSingleName)};
    std::vector<std::string> found;
    std::copy_if(listing.files.begin(), listing.files.end(), std::back_inserter(found), is_weights);
    if (found.size() == 1) return found;
    std::string others;
    size_t n_shown = 0;
    for (const std::string& name : listing.files) {
        if ((!name.ends_with(".gguf") && !name.ends_with(".bin") && !is_weights(name)) || ++n_shown > 5) continue;
        others += (others.empty() ? "" : ", ") + printable(name);
    }
    if (n_shown > 5) others += ", ...";
    if (others.empty()) return unsupported(fmt::format("{} holds no weights", repo));
    return unsupported(fmt::format("{} has no {} and no {}, but {}; one file is fetched by {}:FILE", repo, kSingleName,
                                   kIndexName, others, repo));
}

Result<std::vector<std::string>> indexed_weights(std::string_view index_json, std::string_view what) {
    TRY_ASSIGN(const Json index, parse_json(index_json, what, 8));
    if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object() || index["weight_map"].empty())
        return corrupt_data(fmt::format("{}: expected an object with a 'weight_map' object", what));
    std::vector<std::string> files;
    for (const auto& [name, file] : index["weight_map"].items()) {
        if (!file.is_string() || !is_file_name(file.get_ref<const std::string&>()))
            return corrupt_data(fmt::format("{}: weight_map '{}' is not a file name", what, printable(name)));
        files.push_back(file.get<std::string>());
    }
    std::sort(files.begin(), files.end());
    files.erase(std::unique(files.begin(), files.end()), files.end());
    return files;
}

}  // namespace espalier::hub
