#include "hub/http.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <optional>

#include "base/check.h"
#include "hub/names.h"

namespace espalier::hub {
namespace {

constexpr int kRedirectsMax = 8;
constexpr long kConnectSeconds = 20;
constexpr long kSilentSeconds = 30;  // without a byte
constexpr long kReceiveBytes = 256 << 10;
constexpr size_t kHeaderBytesMax = size_t{64} << 10;

std::string lower(std::string_view text) {
    std::string out(text);
    std::transform(out.begin(), out.end(), out.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    return out;
}

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && std::string_view(" \t\r\n").find(text.front()) != std::string_view::npos) text.remove_prefix(1);
    while (!text.empty() && std::string_view(" \t\r\n").find(text.back()) != std::string_view::npos) text.remove_suffix(1);
    return text;
}

struct Origin {
    std::string scheme;
    std::string host;
    std::string port;
    bool operator==(const Origin&) const = default;
};

// Nothing when it is no URL of http or https.
std::optional<Origin> origin_of(const std::string& url) {
    const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> handle(curl_url(), curl_url_cleanup);
    if (!handle || curl_url_set(handle.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) return std::nullopt;
    const auto part = [&](CURLUPart what, unsigned int flags) {
        char* text = nullptr;
        std::string value;
        if (curl_url_get(handle.get(), what, &text, flags) == CURLUE_OK && text != nullptr) value = text;
        curl_free(text);
        return value;
    };
    Origin origin{lower(part(CURLUPART_SCHEME, 0)), lower(part(CURLUPART_HOST, 0)), part(CURLUPART_PORT, CURLU_DEFAULT_PORT)};
    if ((origin.scheme != "http" && origin.scheme != "https") || origin.host.empty()) return std::nullopt;
    return origin;
}

struct FreeEasy {
    void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
struct FreeList {
    void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

}  // namespace

std::string_view header(const Headers& headers, std::string_view name) {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

// One exchange, with its redirects.
struct Exchange {
    HttpRequest request;
    std::function<void(HttpResult)> done;
    std::string url;
    Origin origin;
    int n_redirects = 0;
    HttpResult result;
    size_t header_bytes = 0;
    bool has_body = false;  // the answer's head was accepted
    std::unique_ptr<CURL, FreeEasy> easy;
    std::unique_ptr<curl_slist, FreeList> headers;
    char error_text[CURL_ERROR_SIZE] = "";
};

struct HttpSession::Impl {
    HttpOptions options;
    Origin hub;
    CURLM* multi = nullptr;
    std::list<Exchange> exchanges;

    ~Impl() {
        for (const Exchange& exchange : exchanges) curl_multi_remove_handle(multi, exchange.easy.get());
        exchanges.clear();
        if (multi != nullptr) curl_multi_cleanup(multi);
    }

    bool start(Exchange& exchange) {
        exchange.result.head.status = 0;
        exchange.result.head.headers.clear();
        exchange.result.head.is_hub = exchange.origin == hub;
        exchange.result.head.host = exchange.origin.host;
        exchange.header_bytes = 0;
        exchange.has_body = false;
        exchange.error_text[0] = '\0';
        exchange.easy.reset(curl_easy_init());
        CURL* easy = exchange.easy.get();
        if (easy == nullptr) return false;
        curl_slist* list = curl_slist_append(nullptr, "Accept-Encoding: identity");
        if (exchange.origin == hub && !options.token.empty())
            list = curl_slist_append(list, ("Authorization: Bearer " + options.token).c_str());
        exchange.headers.reset(list);
        curl_easy_setopt(easy, CURLOPT_URL, exchange.url.c_str());
        curl_easy_setopt(easy, CURLOPT_HTTPHEADER, list);
        curl_easy_setopt(easy, CURLOPT_USERAGENT, options.user_agent.c_str());
        curl_easy_setopt(easy, CURLOPT_NOBODY, exchange.request.method == HttpRequest::Method::head ? 1L : 0L);
        if (exchange.request.first_byte >= 0) {
            const std::string range = fmt::format("{}-{}", exchange.request.first_byte, exchange.request.last_byte);
            curl_easy_setopt(easy, CURLOPT_RANGE, range.c_str());
        }
        curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
        curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);  // a connection each: parallel ranges are for that
        curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
        curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
        curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, kSilentSeconds);
        curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, kReceiveBytes);
        curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, exchange.error_text);
        if (!options.ca_file.empty()) curl_easy_setopt(easy, CURLOPT_CAINFO, options.ca_file.c_str());
        curl_easy_setopt(easy, CURLOPT_PRIVATE, &exchange);
        curl_easy_setopt(easy, CURLOPT_HEADERDATA, &exchange);
        curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &on_header);
        curl_easy_setopt(easy, CURLOPT_WRITEDATA, &exchange);
        curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &on_write);
        return curl_multi_add_handle(multi, easy) == CURLM_OK;
    }

    static size_t on_header(char* data, size_t, size_t n_bytes, void* context) {
        auto& exchange = *static_cast<Exchange*>(context);
        const std::string_view line = trimmed({data, n_bytes});
        exchange.header_bytes += n_bytes;
        if (exchange.header_bytes > kHeaderBytesMax) return 0;
        Headers& headers = exchange.result.head.headers;
        if (line.starts_with("HTTP/")) {
            headers.clear();  // an interim answer, or a proxy's, came before
        } else if (const size_t colon = line.find(':'); colon != std::string_view::npos) {
            headers[lower(trimmed(line.substr(0, colon)))] = trimmed(line.substr(colon + 1));
        } else if (line.empty()) {
            return accept_head(exchange) ? n_bytes : 0;
        }
        return n_bytes;
    }

    static bool accept_head(Exchange& exchange) {
        ResponseHead& head = exchange.result.head;
        long status = 0;
        curl_easy_getinfo(exchange.easy.get(), CURLINFO_RESPONSE_CODE, &status);
        if (status < 200) return true;
        head.status = static_cast<int>(status);
        if (head.is_hub) {
            for (const auto& [name, value] : head.headers) head.hub[name] = value;
        }
        if (status >= 300) return true;
        exchange.has_body = true;
        if (!exchange.request.on_head || exchange.request.on_head(head)) return true;
        exchange.result.is_stopped = true;
        return false;
    }

    static size_t on_write(char* data, size_t, size_t n_bytes, void* context) {
        auto& exchange = *static_cast<Exchange*>(context);
        if (!exchange.has_body || !exchange.request.on_body) return n_bytes;  // an error page
        if (exchange.request.on_body({data, n_bytes})) return n_bytes;
        exchange.result.is_stopped = true;
        return 0;
    }

    // True if the exchange goes on elsewhere.
    bool follow(Exchange& exchange) {
        const int status = exchange.result.head.status;
        if (status < 300 || status >= 400 || status == 304) return false;
        char* target = nullptr;
        curl_easy_getinfo(exchange.easy.get(), CURLINFO_REDIRECT_URL, &target);
        if (target == nullptr || ++exchange.n_redirects > kRedirectsMax) {
            exchange.result.detail = target == nullptr ? "a redirect without a target" : "too many redirects";
            return false;
        }
        const std::string url = target;
        const auto origin = origin_of(url);
        if (!origin || (exchange.origin.scheme == "https" && origin->scheme != "https")) {
            exchange.result.detail = "a redirect to something that is not https";
            return false;
        }
        // The store that a hub redirects to knows the bytes, not their name: what was asked for is already known.
        const bool is_answered = exchange.request.method == HttpRequest::Method::head && *origin != hub &&
                                 exchange.result.head.hub.contains("x-linked-etag");
        if (is_answered) {
            exchange.result.head.status = 200;
            return false;
        }
        exchange.url = url;
        exchange.origin = *origin;
        return start(exchange);
    }

    void finish(CURL* easy, CURLcode code) {
        const auto exchange =
            std::find_if(exchanges.begin(), exchanges.end(), [easy](const Exchange& e) { return e.easy.get() == easy; });
        CHECK(exchange != exchanges.end(), "every transfer belongs to an exchange");
        curl_multi_remove_handle(multi, easy);
        if (code == CURLE_OK && follow(*exchange)) return;
        exchange->result.curl_code = code;
        if (code != CURLE_OK) {
            const char* words = exchange->error_text[0] != '\0' ? exchange->error_text : curl_easy_strerror(code);
            exchange->result.detail = printable(words);
        }
        const auto done = std::move(exchange->done);
        HttpResult result = std::move(exchange->result);
        exchanges.erase(exchange);
        done(std::move(result));
    }
};

HttpSession::HttpSession(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpSession::~HttpSession() = default;

Result<std::unique_ptr<HttpSession>> HttpSession::create(HttpOptions options) {
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return internal_error("libcurl does not start");
    auto impl = std::make_unique<Impl>();
    const auto origin = origin_of(options.endpoint);
    if (!origin) {
        return invalid_input(fmt::format("the hub's address is \"{}\", expected http://HOST or https://HOST (HF_ENDPOINT)",
                                         printable(options.endpoint)));
    }
    impl->hub = *origin;
    impl->options = std::move(options);
    impl->multi = curl_multi_init();
    if (impl->multi == nullptr) return exhausted("out of memory");
    return std::unique_ptr<HttpSession>(new HttpSession(std::move(impl)));
}

void HttpSession::add(HttpRequest request, std::function<void(HttpResult)> done) {
    Exchange& exchange = impl_->exchanges.emplace_back();
    exchange.url = request.url;
    exchange.origin = origin_of(request.url).value_or(Origin{});
    exchange.request = std::move(request);
    exchange.done = std::move(done);
    CHECK(impl_->start(exchange), "libcurl takes an exchange");
}

void HttpSession::step(int timeout_ms) {
    int n_running = 0;
    curl_multi_perform(impl_->multi, &n_running);
    int n_left = 0;
    bool has_ended = false;
    while (CURLMsg* message = curl_multi_info_read(impl_->multi, &n_left)) {
        if (message->msg != CURLMSG_DONE) continue;
        impl_->finish(message->easy_handle, message->data.result);
        has_ended = true;
    }
    if (!has_ended) curl_multi_poll(impl_->multi, nullptr, 0, timeout_ms, nullptr);
}

int HttpSession::n_running() const {
    return static_cast<int>(impl_->exchanges.size());
}

void HttpSession::cancel_all() {
    for (const Exchange& exchange : impl_->exchanges) curl_multi_remove_handle(impl_->multi, exchange.easy.get());
    impl_->exchanges.clear();
}

const HttpOptions& HttpSession::options() const {
    return impl_->options;
}

HttpResult fetch(HttpSession& session, HttpRequest request, std::string& body, size_t bytes_max) {
    body.clear();
    request.on_body = [&](std::string_view bytes) {
        if (body.size() + bytes.size() > bytes_max) return false;
        body += bytes;
        return true;
    };
    HttpResult result;
    bool is_done = false;
    session.add(std::move(request), [&](HttpResult ended) {
        result = std::move(ended);
        is_done = true;
    });
    while (!is_done) session.step(200);
    return result;
}

}  // namespace espalier::hub
