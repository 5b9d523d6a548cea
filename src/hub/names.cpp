#include "hub/names.h"

#include <fmt/format.h>

#include <algorithm>

namespace espalier::hub {
namespace {

constexpr size_t kRepoBytesMax = 200;
constexpr size_t kRevisionBytesMax = 200;
constexpr size_t kFileBytesMax = 512;
constexpr size_t kBlobBytesMax = 128;
constexpr size_t kShownBytesMax = 200;

bool is_alphanumeric(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_word(std::string_view text, std::string_view also) {
    return !text.empty() && std::all_of(text.begin(), text.end(),
                                        [also](char c) { return is_alphanumeric(c) || also.find(c) != std::string_view::npos; });
}

// Calls accept for every part between slashes; false as soon as one is refused.
template <class Accept>
bool all_parts(std::string_view text, const Accept& accept) {
    for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find('/', begin), text.size());
        if (!accept(text.substr(begin, end - begin))) return false;
        begin = end + 1;
    }
    return true;
}

bool is_plain_part(std::string_view part) {
    return !part.empty() && part != "." && part != "..";
}

}  // namespace

bool is_repo_name(std::string_view name) {
    if (name.size() > kRepoBytesMax || std::count(name.begin(), name.end(), '/') > 1) return false;
    if (name.find("--") != std::string_view::npos || name.find("..") != std::string_view::npos) return false;
    return all_parts(name, [](std::string_view part) { return is_word(part, "._-") && is_plain_part(part) && part[0] != '-'; });
}

bool is_revision(std::string_view name) {
    if (name.size() > kRevisionBytesMax) return false;
    return all_parts(name, [](std::string_view part) { return is_word(part, "._-+") && is_plain_part(part) && part[0] != '-'; });
}

bool is_commit(std::string_view name) {
    return name.size() == 40 &&
           std::all_of(name.begin(), name.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_file_name(std::string_view name) {
    if (name.size() > kFileBytesMax) return false;
    const bool is_odd =
        std::any_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127 || c == '\\'; });
    return !is_odd && all_parts(name, is_plain_part);
}

bool is_blob_name(std::string_view name) {
    return name.size() <= kBlobBytesMax && is_word(name, "_-");
}

Result<RepoRequest> parse_repo_request(std::string_view text) {
    RepoRequest request;
    std::string_view rest = text;
    if (const size_t colon = rest.find(':'); colon != std::string_view::npos) {
        request.file = rest.substr(colon + 1);
        rest = rest.substr(0, colon);
        if (!is_file_name(request.file))
            return invalid_input(fmt::format("\"{}\" names no file of a model after the colon", printable(text)));
    }
    if (const size_t at = rest.find('@'); at != std::string_view::npos) {
        request.revision = rest.substr(at + 1);
        rest = rest.substr(0, at);
        if (!is_revision(request.revision))
            return invalid_input(fmt::format("\"{}\" names no revision after the @", printable(text)));
    }
    request.repo = rest;
    if (!is_repo_name(request.repo)) {
        return invalid_input(fmt::format(
            "\"{}\" is no name of a model on a hub; write ORG/NAME, ORG/NAME@REVISION or ORG/NAME:FILE", printable(text)));
    }
    return request;
}

std::string repo_folder(std::string_view repo) {
    std::string folder = "models--";
    for (const char c : repo) {
        if (c == '/') folder += "--";
        else folder += c;
    }
    return folder;
}

std::optional<std::string> repo_of_folder(std::string_view folder) {
    if (!folder.starts_with("models--")) return std::nullopt;
    std::string repo(folder.substr(8));
    if (const size_t dashes = repo.find("--"); dashes != std::string::npos) repo.replace(dashes, 2, "/");
    if (!is_repo_name(repo)) return std::nullopt;
    return repo;
}

std::string percent_encode(std::string_view text, Slash slash) {
    std::string encoded;
    for (const char c : text) {
        const bool is_kept = is_alphanumeric(c) || std::string_view("-._~").find(c) != std::string_view::npos ||
                             (c == '/' && slash == Slash::keep);
        if (is_kept) encoded += c;
        else encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
    return encoded;
}

std::string printable(std::string_view text) {
    std::string shown(text.substr(0, kShownBytesMax));
    for (char& c : shown) {
        if (static_cast<unsigned char>(c) < 32 || c == 127) c = ' ';
    }
    if (text.size() > kShownBytesMax) shown += "...";
    return shown;
}

}  // namespace espalier::hub
