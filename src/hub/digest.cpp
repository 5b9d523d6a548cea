#include "hub/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

namespace espalier::hub {
namespace {

constexpr size_t kReadBytes = size_t{4} << 20;

struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

Checksum checksum_of(std::string_view blob_name) {
    const bool is_hex =
        std::all_of(blob_name.begin(), blob_name.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
    if (is_hex && blob_name.size() == 64) return Checksum::sha256;
    if (is_hex && blob_name.size() == 40) return Checksum::git_sha1;
    return Checksum::none;
}

std::string_view to_string(Checksum kind) {
    switch (kind) {
        case Checksum::sha256: return "SHA-256";
        case Checksum::git_sha1: return "git SHA-1";
        case Checksum::none: break;
    }
    return "none";
}

Result<std::string> digest_file(const std::string& path, Checksum kind, int64_t n_bytes,
                                const std::function<void(int64_t)>& progress) {
    const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
    if (!file) return invalid_input(fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
    if (!context) return exhausted("out of memory");
    EVP_DigestInit_ex(context.get(), kind == Checksum::git_sha1 ? EVP_sha1() : EVP_sha256(), nullptr);
    if (kind == Checksum::git_sha1) {
        const std::string head = fmt::format("blob {}", n_bytes);
        EVP_DigestUpdate(context.get(), head.c_str(), head.size() + 1);
    }
    std::vector<char> buffer(kReadBytes);
    int64_t done = 0;
    for (;;) {
        const size_t n = std::fread(buffer.data(), 1, buffer.size(), file.get());
        if (n == 0) break;
        EVP_DigestUpdate(context.get(), buffer.data(), n);
        done += static_cast<int64_t>(n);
        progress(done);
    }
    if (std::ferror(file.get()) != 0) return invalid_input(fmt::format("{}: cannot read: {}", path, std::strerror(errno)));
    if (done != n_bytes) return corrupt_data(fmt::format("{}: {} bytes, expected {}", path, done, n_bytes));
    if (kind == Checksum::none) return std::string();
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    EVP_DigestFinal_ex(context.get(), digest, &length);
    std::string text;
    for (unsigned int i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
    return text;
}

}  // namespace espalier::hub
