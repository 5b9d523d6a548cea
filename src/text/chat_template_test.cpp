// The template engine against recorded outputs of jinja2 in Hugging Face's environment (tests/golden/text), and hostile
// templates.
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "text/jinja/parser.h"

namespace espalier::text {
namespace {

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    EXPECT_TRUE(file) << path;
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

std::string golden(const std::string& name) {
    return read_file(std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/text/" + name);
}

ValueList golden_lines(const std::string& name) {
    ValueList cases;
    std::istringstream lines(golden(name));
    for (std::string line; std::getline(lines, line);) {
        auto value = parse_json_value(line, name);
        EXPECT_TRUE(value) << line;
        cases.push_back(*value);
    }
    return cases;
}

std::string text_of(const Value* value) {
    EXPECT_NE(value, nullptr);
    return value != nullptr && value->as_string() != nullptr ? *value->as_string() : std::string();
}

struct Outcome {
    std::string rendered;
    std::string kind;  // empty = no error
    std::string message;
    int line = 0;
};

Outcome render(std::string_view source, const Value& context) {
    auto parsed = jinja::parse_template(source);
    if (const auto* error = std::get_if<jinja::TemplateError>(&parsed)) {
        return {"", std::string(to_string(error->kind)), error->message, error->line};
    }
    auto chat_template = ChatTemplate::parse(source);
    EXPECT_TRUE(chat_template);
    auto outcome = (*chat_template)->render_or_error(context);
    if (const auto* error = std::get_if<jinja::TemplateError>(&outcome)) {
        return {"", std::string(to_string(error->kind)), error->message, error->line};
    }
    return {std::get<std::string>(outcome), "", "", 0};
}

Outcome render_json(std::string_view source, const std::string& context = "{}") {
    return render(source, *parse_json_value(context, "context"));
}

void check_case(const Value& expected, const Outcome& outcome, const char* output_key) {
    const std::string id = text_of(expected.find("id"));
    if (const Value* output = expected.find(output_key)) {
        EXPECT_EQ(outcome.kind, "") << id << ": " << outcome.message;
        EXPECT_EQ(outcome.rendered, *output->as_string()) << id;
        return;
    }
    EXPECT_EQ(outcome.kind, text_of(expected.find("error_kind"))) << id << ": " << outcome.message;
    EXPECT_EQ(outcome.message, text_of(expected.find("error"))) << id;
}

void check_micro(const std::string& file, size_t at_least) {
    const ValueList cases = golden_lines(file);
    EXPECT_GE(cases.size(), at_least);
    for (const Value& one : cases) {
        SCOPED_TRACE(text_of(one.find("template")));
        check_case(one, render(text_of(one.find("template")), *one.find("context")), "output");
    }
}

TEST(ChatTemplate, LineOfAnError) {
    EXPECT_EQ(render_json("a\n{% if x %}\n{{ x.y.z }}{% endif %}", R"({"x": {"a": 1}})").line, 3);
    EXPECT_EQ(render_json("a\nb{% include 'x' %}").line, 2);
}

TEST(ChatTemplate, MicroGoldens) {
    check_micro("jinja-micro.jsonl", 80);
}

TEST(ChatTemplate, ChatGoldens) {
    std::map<std::string, std::shared_ptr<const ChatTemplate>> templates;
    for (const char* name : {"qwen3.5", "qwen3.6"}) {
        auto parsed = ChatTemplate::parse(golden(std::string("templates/") + name + ".jinja"));
        ASSERT_TRUE(parsed) << parsed.error().message;
        templates[name] = *parsed;
    }
    const ValueList cases = golden_lines("chat-template.jsonl");
    EXPECT_GE(cases.size(), 194u);
    for (const Value& one : cases) {
        ValueDict context = {{"messages", *one.find("messages")}, {"tools", *one.find("tools")}};
        for (const auto& argument : *one.find("kwargs")->as_dict()) context.push_back(argument);
        auto result = templates[text_of(one.find("template"))]->render_or_error(Value(std::move(context)));
        Outcome outcome;
        if (const auto* error = std::get_if<jinja::TemplateError>(&result)) {
            outcome = {"", std::string(to_string(error->kind)), error->message, error->line};
        } else {
            outcome.rendered = std::get<std::string>(result);
        }
        check_case(one, outcome, "rendered");
    }
}

}  // namespace
}  // namespace espalier::text
