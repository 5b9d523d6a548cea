// fuzz-links: espalier_hub
// What a hub says: whatever the bytes are, names that leave the folder are refused and an error is one line.
#include <cstdlib>
#include <string_view>

#include "hub/blob_download.h"
#include "hub/listing.h"
#include "hub/names.h"

namespace {

void check_file(std::string_view name) {
    if (name.empty() || name.front() == '/' || name.find("..") == 0 || name.find("/../") != std::string_view::npos) std::abort();
}

template <class T>
void check_error(const espalier::Result<T>& result) {
    if (!result && result.error().message.find('\n') != std::string::npos) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    namespace hub = espalier::hub;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto listing = hub::parse_listing(text);
    check_error(listing);
    if (listing) {
        for (const std::string& name : listing->files) check_file(name);
        check_error(hub::unindexed_weights(*listing, "a/b"));
    }
    const auto shards = hub::indexed_weights(text, "index");
    check_error(shards);
    if (shards) {
        for (const std::string& name : *shards) check_file(name);
    }
    check_error(hub::parse_repo_request(text));
    if (const auto range = hub::parse_content_range(text); range && range->first > range->last) std::abort();
    const std::string blob = hub::blob_of({{"etag", std::string(text)}});
    if (blob.find_first_of("/.") != std::string::npos) std::abort();
    return 0;
}
