// fuzz-links: espalier_text
// Any bytes as a template: parsed or refused, and what parses renders or fails within its limits.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/chat_template.h"
#include "text/chat_value.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace {

const espalier::text::Value& context() {
    static const espalier::text::Value value = [] {
        auto parsed = espalier::text::parse_json_value(
            R"({"x": 1, "s": "a\u00e9\ud83d\ude00 b", "l": [1, 2.5, "x", null, true], "d": {"b": 1, "a": [{"c": "d"}]}, "n": null,
                "messages": [{"role": "user", "content": "Hi"}, {"role": "tool", "content": [{"type": "text", "text": "t"}]}]})",
            "context");
        CHECK(parsed.has_value(), "the context is JSON");
        return *parsed;
    }();
    return value;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    namespace jinja = espalier::text::jinja;
    auto parsed = jinja::parse_template(std::string_view(reinterpret_cast<const char*>(data), size));
    if (const auto* error = std::get_if<jinja::TemplateError>(&parsed)) {
        CHECK(!error->message.empty(), "an error says something");
        return 0;
    }
    jinja::Limits limits;
    limits.steps = 20'000;
    limits.created_bytes = size_t{1} << 22;
    limits.text_bytes = size_t{1} << 20;
    jinja::Interpreter interpreter(*std::get<0>(parsed), limits);
    std::string out;
    const bool is_fine = interpreter.render(context(), out);
    CHECK(is_fine || !interpreter.error().message.empty() || interpreter.error().kind == jinja::ErrorKind::raise_exception,
          "an error says something");
    CHECK(out.size() <= 2 * limits.text_bytes, "output is bounded");
    return 0;
}
