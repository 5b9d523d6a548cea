// What a repository holds, as the hub's API says it, and which of it the engine needs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace espalier::hub {

struct RepoListing {
    std::string commit;              // 40 hexadecimal digits
    std::vector<std::string> files;  // checked by is_file_name
};

// The answer to GET /api/models/REPO/revision/REVISION. Errors: corrupt_data when it is none.
Result<RepoListing> parse_listing(std::string_view json);

// The small files to fetch first: config, tokenizer, template, sampling defaults, quantisation, licence, index of the weights.
std::vector<std::string> small_files(const RepoListing& listing);
// The index of the weights, empty if the listing has none.
std::string index_file(const RepoListing& listing);
// Weights when there is no index: model.safetensors, or the only safetensors file. Errors: unsupported with what there is
// instead.
Result<std::vector<std::string>> unindexed_weights(const RepoListing& listing, std::string_view repo);
// The files that an index names, each once, in order. Errors: corrupt_data.
Result<std::vector<std::string>> indexed_weights(std::string_view index_json, std::string_view what);

}  // namespace espalier::hub
