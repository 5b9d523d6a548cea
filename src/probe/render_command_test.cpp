#include "probe/render_command.h"

#include <gtest/gtest.h>

#include <sstream>

namespace espalier::probe {
namespace {

std::string rendered(const char* source, const std::string& lines, std::string* error = nullptr) {
    auto chat_template = text::ChatTemplate::parse(source);
    EXPECT_TRUE(chat_template);
    std::istringstream in(lines);
    std::ostringstream out;
    const Status status = run_render(**chat_template, in, out);
    if (error != nullptr) *error = status ? "" : status.error().message;
    else EXPECT_TRUE(status);
    return out.str();
}

TEST(RenderCommand, one_reply_per_line) {
    const char* source = "{{ messages[0].content }}{{ tools }}{{ extra is defined }}{{ add_generation_prompt }}";
    EXPECT_EQ(
        rendered(source,
                 "{\"messages\": [{\"content\": \"a\\n\"}], \"tools\": null, \"kwargs\": null}\n\n"
                 "{\"messages\": [{\"content\": 12345678901234567890123}], \"tools\": [1.0], \"kwargs\": {\"extra\": 1}}\n"),
        "{\"rendered\":\"a\\nNoneFalseFalse\"}\n{\"rendered\":\"12345678901234567890123[1.0]TrueFalse\"}\n");
}

TEST(RenderCommand, template_errors_are_replies) {
    EXPECT_EQ(rendered("a\n{{ raise_exception('No, \"thanks\"') }}", "{\"messages\": []}"),
              "{\"error\":\"No, \\\"thanks\\\"\",\"error_kind\":\"raise_exception\",\"line\":2}\n");
    EXPECT_EQ(rendered("{{ messages[0].x.y }}", "{\"messages\": [{}]}"),
              "{\"error\":\"'dict object' has no attribute 'x'\",\"error_kind\":\"undefined\",\"line\":1}\n");
}

TEST(RenderCommand, a_bad_line_is_named_and_earlier_replies_stay) {
    std::string error;
    EXPECT_EQ(rendered("x", "{\"messages\": []}\n{\"tools\": []}\n{\"messages\": []}", &error), "{\"rendered\":\"x\"}\n");
    EXPECT_EQ(error, "line 2: \"messages\" is expected");
    rendered("x", "[]", &error);
    EXPECT_EQ(error, "line 1: a JSON object is expected");
    rendered("x", "{\"messages\": [], \"kwargs\": 1}", &error);
    EXPECT_EQ(error, "line 1: \"kwargs\" is an object or null");
    rendered("x", "{", &error);
    EXPECT_NE(error.find("line 1: byte"), std::string::npos) << error;
}

}  // namespace
}  // namespace espalier::probe
