// fuzz-links: espalier_bench
// A server's event stream, in two splits: the same reply must come out of both.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "bench/reply.h"
#include "bench/sse.h"

namespace {

std::string read(std::string_view bytes, size_t step) {
    espalier::bench::StreamedReply reply;
    espalier::bench::SseParser parser([&](std::string_view data) { reply.on_event(data, 1); });
    for (size_t i = 0; i < bytes.size(); i += step) parser.push(bytes.substr(i, step));
    parser.finish();
    return reply.content + '\0' + reply.reasoning + '\0' + espalier::dump_json(reply.tool_calls()) + reply.finish_reason +
           std::to_string(reply.n_malformed) + reply.server_error +
           std::to_string(espalier::bench::bash_actions(reply.tool_calls()).size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    if (read(bytes, size) != read(bytes, 1 + data[0] % 7)) std::abort();
    return 0;
}
