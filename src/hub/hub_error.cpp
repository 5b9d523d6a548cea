// Which header means what is documented with huggingface_hub's errors: X-Error-Code is RepoNotFound, RevisionNotFound,
// EntryNotFound or GatedRepo; a repository that does not exist answers 401 to a stranger, so that names of private ones do not
// leak.
#include "hub/hub_error.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "hub/names.h"

namespace espalier::hub {
namespace {

Error network_error(const HttpResult& result, const HttpOptions& options, const Asked& asked) {
    const std::string via = asked.proxy.empty() ? "" : fmt::format(" through the proxy ({})", asked.proxy);
    const std::string where = result.head.host.empty() ? options.endpoint : result.head.host;
    const auto device = [](std::string message) { return Error{ErrorCode::device, std::move(message)}; };
    const int code = result.curl_code;
    const bool is_proxy = code == CURLE_COULDNT_RESOLVE_PROXY || code == CURLE_PROXY ||
                          (!asked.proxy.empty() && (code == CURLE_COULDNT_CONNECT || code == CURLE_RECV_ERROR));
    if (is_proxy) {
        return device(fmt::format("cannot reach {}{}: {}; correct the variable, or name hosts to reach without it in no_proxy",
                                  where, via, result.detail));
    }
    if (code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_CONNECT) {
        return device(
            fmt::format("cannot reach {}: {}; is this machine offline, or HF_ENDPOINT or a proxy to be set? Models that "
                        "are here: espalier models",
                        where, result.detail));
    }
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE) {
        return device(fmt::format("{} does not prove who it is: {}; a certificate of your own network goes into SSL_CERT_FILE",
                                  where, result.detail));
    }
    return device(fmt::format("the connection to {}{} broke: {}; run the same command again, it goes on where this one ended",
                              where, via, result.detail));
}

Error refused(const HttpResult& result, const HttpOptions& options, const Asked& asked) {
    const std::string_view code = header(result.head.hub, "x-error-code");
    const bool has_token = !options.token.empty();
    const std::string page = options.endpoint + "/" + asked.repo;
    if (code == "GatedRepo") {
        return invalid_input(
            has_token ? fmt::format("{} is gated ({}): ask for access on {} with the account of your token", asked.repo,
                                    result.head.status, page)
                      : fmt::format("{} is gated ({}): ask for access on {}, then set HF_TOKEN to a token of that account",
                                    asked.repo, result.head.status, page));
    }
    if (result.head.status == 403) {
        return invalid_input(fmt::format("{} refuses {} (403){}; may the token in HF_TOKEN read it?", options.endpoint,
                                         asked.repo, has_token ? "" : " without a token"));
    }
    if (has_token && code != "RepoNotFound")
        return invalid_input(fmt::format("{} does not accept the token in HF_TOKEN (401); make a new one", options.endpoint));
    return invalid_input(fmt::format("{} shows no {} (401): it does not exist or is private; check the name{}", options.endpoint,
                                     asked.repo,
                                     has_token ? " and that the token in HF_TOKEN may read it" : ", or set HF_TOKEN"));
}

Error not_found(const HttpResult& result, const HttpOptions& options, const Asked& asked) {
    const std::string_view code = header(result.head.hub, "x-error-code");
    if (code == "RevisionNotFound") return invalid_input(fmt::format("{} has no revision {} (404)", asked.repo, asked.revision));
    if (code == "EntryNotFound" || (code.empty() && !asked.file.empty()))
        return invalid_input(fmt::format("{} has no file {} at {} (404)", asked.repo, asked.file, asked.revision));
    return invalid_input(
        fmt::format("{} has no model {}, or no revision {} of it (404)", options.endpoint, asked.repo, asked.revision));
}

}  // namespace

Error hub_error(const HttpResult& result, const HttpOptions& options, const Asked& asked) {
    const int status = result.head.status;
    if (result.curl_code != 0 && status < 400) return network_error(result, options, asked);
    if (status == 407) return network_error(result, options, asked);
    if (status == 401 || status == 403) return refused(result, options, asked);
    if (status == 404) return not_found(result, options, asked);
    const std::string said = printable(header(result.head.headers, "x-error-message"));
    const std::string what = asked.file.empty() ? asked.repo : asked.repo + " " + asked.file;
    const std::string detail = !said.empty() ? said : result.detail;
    const char* advice = status == 429 ? "; too many requests: wait some minutes, a token in HF_TOKEN allows more" : "";
    return Error{ErrorCode::device, fmt::format("{} answers {} for {}{}{}", result.head.host, status, what,
                                                detail.empty() ? "" : ": " + detail, advice)};
}

bool is_passing(const HttpResult& result) {
    if (result.is_stopped) return false;
    constexpr std::array kPassing = {CURLE_COULDNT_CONNECT,   CURLE_COULDNT_RESOLVE_HOST, CURLE_PARTIAL_FILE,
                                     CURLE_RECV_ERROR,        CURLE_SEND_ERROR,           CURLE_GOT_NOTHING,
                                     CURLE_SSL_CONNECT_ERROR, CURLE_OPERATION_TIMEDOUT};
    if (result.curl_code != 0) {
        return std::any_of(kPassing.begin(), kPassing.end(), [&](CURLcode code) { return code == result.curl_code; });
    }
    const int status = result.head.status;
    if (status == 403) return !result.head.is_hub;  // a signed address that ran out
    return status == 408 || status == 429 || (status >= 500 && status < 600);
}

}  // namespace espalier::hub
