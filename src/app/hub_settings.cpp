#include "app/hub_settings.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <optional>

#include "base/environment.h"
#include "base/mapped_file.h"

namespace espalier::app {
namespace {

constexpr size_t kTokenBytesMax = 4096;

// The first of these variables that is set to something.
std::optional<std::string> first_set(std::initializer_list<const char*> names, std::string* name_found = nullptr) {
    for (const char* name : names) {
        auto value = environment_variable(name);
        if (!value || value->empty()) continue;
        if (name_found != nullptr) *name_found = name;
        return value;
    }
    return std::nullopt;
}

// A leading "~/" means the home folder there too, though no shell has expanded it.
std::string expanded(const std::string& path) {
    if (!path.starts_with("~/")) return path;
    return environment_variable("HOME").value_or("") + path.substr(1);
}

Result<std::string> huggingface_home() {
    if (const auto home = first_set({"HF_HOME"})) return expanded(*home);
    if (const auto base = first_set({"XDG_CACHE_HOME"})) return expanded(*base) + "/huggingface";
    if (const auto home = first_set({"HOME"})) return *home + "/.cache/huggingface";
    return invalid_input("neither HF_HOME nor HOME is set: no place to keep models");
}

bool is_token(const std::string& text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c > 32 && c < 127; });
}

std::string trimmed(std::string text) {
    while (!text.empty() && static_cast<unsigned char>(text.back()) <= 32) text.pop_back();
    text.erase(0, std::min(text.size(), text.find_first_not_of(" \t\r\n")));
    return text;
}

Result<std::string> find_token(const Result<std::string>& home) {
    if (const auto value = first_set({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})) {
        std::string token = trimmed(*value);
        if (!is_token(token)) return invalid_input("HF_TOKEN holds something that cannot be a token");
        return token;
    }
    const auto named = first_set({"HF_TOKEN_PATH"});
    if (!named && !home) return std::string();
    const auto text = read_file(named ? expanded(*named) : *home + "/token", kTokenBytesMax);
    if (!text) return std::string();
    std::string token = trimmed(*text);
    return is_token(token) ? token : std::string();
}

// "http://user:secret@host:1" without the secret.
std::string without_password(const std::string& url) {
    const size_t at = url.rfind('@');
    if (at == std::string::npos) return url;
    const size_t scheme = url.find("://");
    return (scheme == std::string::npos || scheme > at ? std::string() : url.substr(0, scheme + 3)) + "...@" + url.substr(at + 1);
}

// libcurl reads these itself; here they are named for messages. http_proxy counts in lower case only, as with curl.
std::string proxy_in_force(const std::string& endpoint) {
    std::string name;
    const auto url = endpoint.starts_with("https") ? first_set({"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"}, &name)
                                                   : first_set({"http_proxy", "all_proxy", "ALL_PROXY"}, &name);
    return url ? name + "=" + without_password(*url) : std::string();
}

}  // namespace

Result<HubSettings> hub_settings() {
    HubSettings settings;
    const Result<std::string> home = huggingface_home();
    if (const auto cache = first_set({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})) settings.cache_dir = expanded(*cache);
    else if (home) settings.cache_dir = *home + "/hub";
    else return home.error();
    std::error_code error;
    settings.cache_dir = std::filesystem::absolute(settings.cache_dir, error).lexically_normal().string();
    settings.http.endpoint = first_set({"HF_ENDPOINT"}).value_or("https://huggingface.co");
    while (settings.http.endpoint.ends_with('/')) settings.http.endpoint.pop_back();
    TRY_ASSIGN(settings.http.token, find_token(home));
    settings.http.user_agent = "espalier/" ESPALIER_VERSION;
    settings.http.ca_file = first_set({"SSL_CERT_FILE", "CURL_CA_BUNDLE"}).value_or("");
    settings.proxy = proxy_in_force(settings.http.endpoint);
    const std::string offline = first_set({"HF_HUB_OFFLINE"}).value_or("0");
    settings.is_offline = offline != "0" && offline != "false" && offline != "no";
    return settings;
}

}  // namespace espalier::app
