// fuzz-links: espalier_text
// The output parser on arbitrary model output: no crash, the same result whole and in single bytes, every byte accounted for,
// finished arguments are JSON and cut ones are not. The first byte chooses format, prompt state and stop cause.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "text/chat_value.h"
#include "text/marker_scanner.h"
#include "text/output_parser.h"

namespace {

using namespace espalier;
using namespace espalier::text;

const std::vector<Value>& tools() {
    static const Value list = *parse_json_value(
        R"([{"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {
            "command": {"type": "string"}, "n": {"type": "integer"}, "list": {"type": "array"}, "any": {},
            "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}, {"$ref": "#/$defs/o"}]}}, "$defs": {"o": {"type": "object"}}}}}])",
        "tools");
    return *list.as_list();
}

struct Settings {
    const ToolFormat* format = nullptr;
    PromptState state = PromptState::no_think;
    StopCause cause = StopCause::eos;
};

std::string parse(const Settings& settings, std::string_view output, size_t n_piece) {
    OutputParser parser(*settings.format, tools(), settings.state);
    MarkerScanner scanner(*settings.format);
    std::vector<MarkedRun> runs;
    std::vector<OutputDelta> deltas;
    while (!output.empty()) {
        scanner.push(output.substr(0, n_piece), runs);
        output.remove_prefix(std::min(n_piece, output.size()));
    }
    scanner.flush(runs);
    for (const MarkedRun& run : runs) parser.push(run.text, run.is_marker, deltas);
    parser.finish(settings.cause, deltas);
    std::string streamed;
    for (const OutputDelta& delta : deltas) streamed += delta.text;
    size_t n_bytes = parser.parsed().content.size() + parser.parsed().reasoning.size();
    std::string result = parser.parsed().content + '\0' + parser.parsed().reasoning + '\0' + parser.parsed().finish_reason;
    for (const ParsedCall& call : parser.parsed().calls) {
        CHECK(nlohmann::json::accept(call.arguments) == call.is_complete, "finished arguments are JSON, cut ones are not");
        n_bytes += call.arguments.size();
        result += '\0' + call.name + '\0' + call.arguments;
    }
    CHECK(streamed.size() == n_bytes, "streamed pieces are the whole answer");
    const ByteAccount& bytes = parser.bytes();
    CHECK(bytes.input == bytes.content + bytes.reasoning + bytes.arguments + bytes.framing + bytes.repaired, "no byte is lost");
    for (const auto& [kind, count] : parser.repairs()) result += '\0' + kind + std::to_string(count);
    return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    Settings settings;
    settings.format = &tool_formats()[data[0] % tool_formats().size()];
    settings.state = (data[0] & 0x40) != 0 ? PromptState::think_open : PromptState::no_think;
    settings.cause = (data[0] & 0x80) != 0 ? StopCause::length : StopCause::eos;
    const std::string_view output(reinterpret_cast<const char*>(data) + 1, size - 1);
    const std::string whole = parse(settings, output, size);
    CHECK(parse(settings, output, 1) == whole, "the result does not depend on the cuts");
    CHECK(parse(settings, output, 7) == whole, "the result does not depend on the cuts");
    return 0;
}
