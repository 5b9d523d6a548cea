// fuzz-links: espalier_text
// A request built from arbitrary bytes, rendered by a strict template: repaired or refused, never broken. The first byte of each
// line chooses the role, its second how the rest is used.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/chat_request.h"

namespace {

namespace text = espalier::text;

constexpr std::string_view kStrictTemplate =
    "{%- if not messages %}{{ raise_exception('none') }}{% endif %}"
    "{%- if tools %}{% for tool in tools %}{{ tool|tojson }}{% endfor %}{% endif %}"
    "{%- set ns = namespace(asked=false) %}"
    "{%- for m in messages %}{% set c = m.content|trim %}{% if m.role == 'user' and not (c.startswith('<tool_response>') and "
    "c.endswith('</tool_response>')) %}{% set ns.asked = true %}{% endif %}{% endfor %}"
    "{%- if not ns.asked %}{{ raise_exception('no query') }}{% endif %}"
    "{%- for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('late') }}{% endif %}"
    "{{ m.role + m.content|trim + (m.reasoning_content or '') }}"
    "{%- for call in m.tool_calls or [] %}{{ call.function.name }}{% for k, v in call.function.arguments|items %}{{ k ~ v|tojson "
    "}}{% endfor %}{% endfor %}"
    "{%- endfor %}";

const text::ChatTemplate& chat_template() {
    static const auto parsed = text::ChatTemplate::parse(kStrictTemplate);
    CHECK(parsed.has_value(), "the template parses");
    return **parsed;
}

text::ChatMessage read_message(std::string_view line) {
    static constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
    text::ChatMessage message;
    message.role = kRoles[line.empty() ? 0 : static_cast<unsigned char>(line[0]) % std::size(kRoles)];
    const unsigned use = line.size() < 2 ? 0 : static_cast<unsigned char>(line[1]) % 4;
    const std::string rest(line.substr(std::min<size_t>(2, line.size())));
    if (use == 1) message.content = rest;
    if (use == 2) message.reasoning_content = rest;
    if (use == 3) message.tool_calls.push_back({"id", "f", rest});
    return message;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    std::string_view input(reinterpret_cast<const char*>(data), size);
    text::ChatRequest request;
    while (!input.empty() && request.messages.size() < 64) {
        const size_t end = std::min(input.find('\n'), input.size());
        request.messages.push_back(read_message(input.substr(0, end)));
        input.remove_prefix(std::min(end + 1, input.size()));
    }
    const auto rendered = text::render_chat_text(chat_template(), request);
    CHECK(rendered.has_value(), "every history is repaired");
    request.continue_final_message = true;
    const auto continued = text::render_chat_text(chat_template(), request);
    CHECK(!continued || continued->size() <= rendered->size(), "a continued prompt is a part of the whole");
    return 0;
}
