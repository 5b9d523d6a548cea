#include "probe/render_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <istream>
#include <ostream>
#include <string>

#include "base/json.h"
#include "text/chat_value.h"

namespace espalier::probe {
namespace {

using text::Value;
using text::ValueDict;

// What transformers passes: tools and documents are none when not given, add_generation_prompt is false.
Result<Value> build_context(const Value& line) {
    const auto given = [&line](const char* name) {
        const Value* value = line.find(name);
        return value != nullptr ? *value : Value::none();
    };
    if (line.as_dict() == nullptr) return invalid_input("a JSON object is expected");
    if (given("messages").is_none()) return invalid_input("\"messages\" is expected");
    ValueDict context;
    const Value kwargs = given("kwargs");
    if (!kwargs.is_none()) {
        if (kwargs.as_dict() == nullptr) return invalid_input("\"kwargs\" is an object or null");
        context = *kwargs.as_dict();
    }
    const auto set = [&context](const char* name, Value value) {
        const bool is_set =
            std::any_of(context.begin(), context.end(), [name](const auto& entry) { return entry.first == name; });
        if (!is_set) context.emplace_back(name, std::move(value));
    };
    set("messages", given("messages"));
    set("tools", given("tools"));
    set("documents", Value::none());
    set("add_generation_prompt", Value(false));
    return Value(std::move(context));
}

Json render_line(const text::ChatTemplate& chat_template, const Value& context) {
    auto outcome = chat_template.render_or_error(context);
    if (const auto* error = std::get_if<text::jinja::TemplateError>(&outcome)) {
        return Json{{"error", error->message}, {"error_kind", std::string(to_string(error->kind))}, {"line", error->line}};
    }
    return Json{{"rendered", std::get<std::string>(std::move(outcome))}};
}

}  // namespace

Status run_render(const text::ChatTemplate& chat_template, std::istream& in, std::ostream& out) {
    size_t n_lines = 0;
    for (std::string text; std::getline(in, text);) {
        ++n_lines;
        if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
        const std::string where = fmt::format("line {}", n_lines);
        TRY_ASSIGN(const Value line, text::parse_json_value(text, where));
        auto context = build_context(line);
        if (!context) return invalid_input(fmt::format("{}: {}", where, context.error().message));
        out << dump_json(render_line(chat_template, *context)) << '\n' << std::flush;
    }
    return {};
}

}  // namespace espalier::probe
