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
    const Value* error = expected.find("error");
    EXPECT_EQ(outcome.message, error != nullptr ? *error->as_string() : outcome.message) << id;
}

// A line without a template holds the context of those that have none of their own.
void check_micro(const std::string& file, size_t at_least) {
    Value shared;
    size_t n = 0;
    for (const Value& one : golden_lines(file)) {
        const Value* context = one.find("context");
        if (one.find("template") == nullptr) {
            shared = *context;
            continue;
        }
        SCOPED_TRACE(text_of(one.find("template")));
        check_case(one, render(text_of(one.find("template")), context != nullptr ? *context : shared), "output");
        ++n;
    }
    EXPECT_GE(n, at_least);
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

// ---- What is refused

std::string refusal(std::string_view source) {
    const auto parsed = ChatTemplate::parse(source);
    EXPECT_FALSE(parsed) << source;
    return parsed ? "" : std::string(to_string(parsed.error().code)) + ": " + parsed.error().message;
}

TEST(ChatTemplate, UnsupportedConstructsAreNamedWithTheirLine) {
    EXPECT_EQ(refusal("a\n{% include 'x' %}"), "unsupported: chat template line 2: the tag 'include' is not supported");
    EXPECT_EQ(refusal("{% extends 'x' %}"), "unsupported: chat template line 1: the tag 'extends' is not supported");
    EXPECT_EQ(refusal("{% from 'x' import y %}"), "unsupported: chat template line 1: the tag 'from' is not supported");
    EXPECT_EQ(refusal("{% block b %}{% endblock %}"), "unsupported: chat template line 1: the tag 'block' is not supported");
    EXPECT_EQ(refusal("\n\n{{ x | urlize }}"), "unsupported: chat template line 3: the filter 'urlize' is not supported");
    EXPECT_EQ(refusal("{{ x[1, 2] }}"), "unsupported: chat template line 1: a subscript with several indices is not supported");
    EXPECT_EQ(render_json("{% if false %}{{ x | urlize }}{% endif %}ok").rendered, "ok");
    EXPECT_EQ(render_json("{% if true %}{{ x | urlize }}{% endif %}").kind, "unsupported");
    EXPECT_EQ(refusal("{% break %}"), "invalid_input: chat template line 1: 'break' outside loop");
}

TEST(ChatTemplate, RefusalIsTheTemplatesOwnText) {
    const auto chat_template = ChatTemplate::parse("x\n{{ raise_exception('No. ' ~ 1) }}");
    ASSERT_TRUE(chat_template);
    const auto text = (*chat_template)->render(Value(ValueDict{}));
    ASSERT_FALSE(text);
    EXPECT_EQ(text.error().code, ErrorCode::invalid_input);
    EXPECT_EQ(text.error().message, "No. 1");
    const auto other = ChatTemplate::parse("x\n{{ a.b }}");
    EXPECT_EQ((*other)->render(Value(ValueDict{})).error().message, "chat template line 2: 'a' is undefined");
}

TEST(ChatTemplate, ADeepSourceIsRefused) {
    const auto repeat = [](const std::string& text, size_t n) {
        std::string out;
        for (size_t i = 0; i < n; ++i) out += text;
        return out;
    };
    constexpr size_t kMany = 100'000;
    for (const char* part : {"(", "[", "{", "not ", "- ", "-", "x[", "f(", "x if ", "x.y(", "1,", "x is x "}) {
        const auto parsed = ChatTemplate::parse("{{ " + repeat(part, kMany));
        EXPECT_FALSE(parsed) << part;
    }
    for (const char* part :
         {"{% if x %}", "{% for i in x %}", "{% macro f() %}", "{% with %}", "{% set x %}", "{% filter upper %}"}) {
        EXPECT_FALSE(ChatTemplate::parse(repeat(part, kMany))) << part;
    }
    EXPECT_FALSE(ChatTemplate::parse("{% set " + repeat("(", kMany)));
    EXPECT_FALSE(ChatTemplate::parse("{{ x" + repeat(".y", kMany) + " }}"));
    EXPECT_FALSE(ChatTemplate::parse("{{ x" + repeat("|upper", kMany) + " }}"));
    EXPECT_FALSE(ChatTemplate::parse("{{ 1" + repeat(" if x else 1", kMany) + " }}"));
}

TEST(ChatTemplate, ALongSourceIsNot) {
    const auto repeat = [](const std::string& text, size_t n) {
        std::string out;
        for (size_t i = 0; i < n; ++i) out += text;
        return out;
    };
    EXPECT_EQ(render_json("{{ 0" + repeat(" + 1", 10'000) + " }}").rendered, "10000");
    EXPECT_EQ(render_json("{{ false" + repeat(" or false", 10'000) + " }}").rendered, "False");
    EXPECT_EQ(render_json("{{ ''" + repeat(" ~ 'a'", 1'000) + " }}").rendered, repeat("a", 1'000));
    EXPECT_EQ(render_json("{% if false %}" + repeat("{% elif false %}", 10'000) + "{% else %}x{% endif %}").rendered, "x");
    EXPECT_EQ(render_json("{{ " + repeat("(", 50) + "1" + repeat(")", 50) + " }}").rendered, "1");
}

TEST(ChatTemplate, EndlessWorkEndsInAnError) {
    const char* const templates[] = {
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{{ i }}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s=[]) %}{% for i in range(99999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}",
        "{% set n = namespace(s=[], t=[]) %}{% for i in range(500) %}{% set n.s = [n.s, n.s] %}{% set n.t = [n.t] %}{% endfor %}",
        "{{ 'a' * 999999999999 }}",
        "{{ [1] * 999999999999 }}",
        "{{ 'a'.center(999999999999) }}",
        "{{ 'a'.zfill(9999999999999) }}",
        "{{ 'a'|indent(999999999999) }}",
        "{{ '%999999999d' % 1 }}{{ '%999999999d' % 1 }}",
        "{{ [1]|batch(999999999, 0)|list }}",
        "{{ [1]|slice(999999999)|list }}",
        "{{ ('a' * 9999999).replace('a', 'a' * 9999) }}",
        "{{ ('a' * 9999999).split('a')|join('bbbbbbbbbbbbbbbbb') }}",
        "{{ 7 ** 9999999 }}",
        "{{ 9 ** 4000 ** 4000 }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    };
    for (const char* source : templates) {
        const Outcome outcome = render_json(source);
        EXPECT_TRUE(outcome.kind == "limit" || outcome.kind == "ValueError")
            << source << ": " << outcome.kind << " " << outcome.message;
    }
    const auto chat_template = ChatTemplate::parse(templates[0]);
    EXPECT_EQ((*chat_template)->render(Value(ValueDict{})).error().code, ErrorCode::exhausted);
}

TEST(ChatTemplate, ANamespaceThatHoldsItselfIsHarmless) {
    EXPECT_EQ(render_json(
                  "{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}{{ ns.me.me.l|length }}{{ ns.l == [ns] }}")
                  .rendered,
              "1True");
}

TEST(ChatTemplate, ADeepContextIsReadOrRefused) {
    std::string deep = "1";
    for (int i = 0; i < 250; ++i) deep = "[" + deep + "]";
    EXPECT_EQ(render_json("{{ x|tojson|length }}{{ x == x }}", "{\"x\": " + deep + "}").rendered, "501True");
    Value value(1);
    for (int i = 0; i < 2000; ++i) value = Value(ValueList{value});
    EXPECT_EQ(render("{{ x }}", Value(ValueDict{{"x", value}})).kind, "limit");
}

TEST(ChatTemplate, BytesThatAreNoTextAreRefused) {
    EXPECT_FALSE(ChatTemplate::parse("a\xff{{ x }}"));
    EXPECT_EQ(render_json(std::string_view("a\0b{{ 'c\0' }}", 13)).rendered, std::string("a\0bc\0", 5));
}

TEST(ChatTemplate, TodaysDate) {
    EXPECT_EQ(render_json("{{ strftime_now('%Y-%m-%d')|length }}{{ strftime_now('x') }}").rendered, "10x");
}

TEST(ChatTemplate, IsSharedBetweenRenderings) {
    const auto chat_template =
        ChatTemplate::parse("{% set ns = namespace(n=0) %}{% for i in l %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}");
    const auto context = parse_json_value(R"({"l": [1, 2, 3]})", "context");
    for (int i = 0; i < 3; ++i) EXPECT_EQ(*(*chat_template)->render(*context), "6");
}

}  // namespace
}  // namespace espalier::text
