// fuzz-links: espalier_server
// The body of a chat request on arbitrary bytes: an error that is a 400 with words, or a request within all limits.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/chat_completions_request.h"

using namespace espalier;
using namespace espalier::server;

namespace {

void check_request(const ChatCompletionsRequest& request, const ServerLimits& limits) {
    CHECK(!request.chat.messages.empty(), "an accepted request has a message");
    for (const text::ChatMessage& message : request.chat.messages) {
        CHECK(!message.role.empty(), "every message has a role");
        for (const text::ToolCallMessage& call : message.tool_calls) CHECK(!call.name.empty(), "every call has a name");
    }
    CHECK(request.chat.tools.size() <= static_cast<size_t>(limits.tools), "tools within the limit");
    const RequestFields& fields = request.fields;
    CHECK(fields.tokens_max == -1 || fields.tokens_max > 0, "a limit of tokens is positive or absent");
    CHECK(fields.n_choices >= 1 && fields.n_choices <= limits.choices, "choices within the limit");
    CHECK(std::isfinite(fields.sampling.temperature) && fields.sampling.temperature >= 0, "temperature is usable");
    CHECK(fields.sampling.top_p > 0 && fields.sampling.top_p <= 1, "top_p is a share");
    CHECK(fields.sampling.repetition_penalty > 0, "a penalty of zero would divide by zero");
    for (const std::string& stop : fields.stops) CHECK(!stop.empty(), "an empty stop string would end every reply");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view body(reinterpret_cast<const char*>(data), size);
    const ServerLimits limits;
    ChatCompletionsRequest request;
    const auto error = parse_chat_completions(body, limits, SamplingDefaults(), text::Thinking::unspecified, request);
    if (error) {
        CHECK(error->status == 400 && !error->message.empty(), "a bad body is a 400 that says why");
        return 0;
    }
    check_request(request, limits);
    return 0;
}
