#include "bench/dataset.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/mapped_file.h"

namespace espalier::bench {
namespace {

constexpr size_t kDatasetBytesMax = size_t{1} << 30;

const Json* member(const Json& object, std::string_view key) {
    const auto it = object.find(std::string(key));
    return it == object.end() || it->is_null() ? nullptr : &*it;
}

Status check_text(const Json& row, std::string_view key) {
    const Json* value = member(row, key);
    if (value != nullptr && !value->is_string()) return invalid_input(fmt::format("\"{}\" is not a string", key));
    return {};
}

Status check_tool_row(const Json& row) {
    const Json* results = member(row, "tool_results");
    if (results == nullptr || !results->is_array() || results->empty()) {
        return invalid_input("a tool row needs \"tool_results\", a list with at least one entry");
    }
    for (const Json& result : *results) {
        const bool is_ok = result.is_object() && member(result, "content") != nullptr && member(result, "content")->is_string() &&
                           member(result, "tool_call_id") != nullptr && member(result, "tool_call_id")->is_string();
        if (!is_ok) return invalid_input("a tool result needs the strings \"tool_call_id\" and \"content\"");
    }
    return {};
}

Status check_assistant_row(const Json& row) {
    TRY(check_text(row, "content"));
    TRY(check_text(row, "reasoning_content"));
    const Json* calls = member(row, "tool_calls");
    if (calls == nullptr) return {};
    if (!calls->is_array()) return invalid_input("\"tool_calls\" is not a list");
    for (const Json& call : *calls) {
        const Json* function = call.is_object() ? member(call, "function") : nullptr;
        const Json* arguments = function != nullptr && function->is_object() ? member(*function, "arguments") : nullptr;
        if (arguments == nullptr || !arguments->is_string()) {
            return invalid_input("a tool call needs \"function\" with the string \"arguments\"");
        }
    }
    return {};
}

// Checks a row's own shape.
Status check_row(const Json& row, const std::string& role) {
    if (role == "user") {
        if (member(row, "content") == nullptr) return invalid_input("a user row needs \"content\"");
        TRY(check_text(row, "content"));
        TRY(check_text(row, "system"));
        const Json* tools = member(row, "tools");
        if (tools != nullptr && !tools->is_array()) return invalid_input("\"tools\" is not a list");
        return {};
    }
    if (role == "tool") return check_tool_row(row);
    if (role == "assistant") return check_assistant_row(row);
    return invalid_input(fmt::format("role '{}', expected user, assistant or tool", role));
}

Status add_row(Dataset& dataset, const Json& row) {
    if (!row.is_object()) return invalid_input("not an object");
    const Json* id = member(row, "conversation_id");
    const Json* turn = member(row, "turn");
    const Json* role = member(row, "role");
    if (id == nullptr || !id->is_string() || id->get_ref<const std::string&>().empty()) {
        return invalid_input("\"conversation_id\" is not a non-empty string");
    }
    if (turn == nullptr || !turn->is_number_integer()) return invalid_input("\"turn\" is not an integer");
    if (role == nullptr || !role->is_string()) return invalid_input("\"role\" is not a string");
    TRY(check_row(row, role->get<std::string>()));

    auto& conversations = dataset.conversations;
    const std::string& name = id->get_ref<const std::string&>();
    if (conversations.empty() || conversations.back().id != name) {
        if (std::ranges::find(conversations, name, &Conversation::id) != conversations.end()) {
            return invalid_input(fmt::format("conversation '{}' appears again after another one; rows must be grouped", name));
        }
        conversations.push_back({.id = name, .system = "", .tools = nullptr, .rows = {}});
    }
    Conversation& conversation = conversations.back();
    DatasetRow entry{turn->get<int64_t>(), role->get<std::string>(), row};
    if (!conversation.rows.empty()) {
        const DatasetRow& before = conversation.rows.back();
        if (entry.turn <= before.turn) {
            return invalid_input(
                fmt::format("turn {} of '{}' follows turn {}; turns must ascend", entry.turn, name, before.turn));
        }
        if (entry.is_request() == before.is_request()) {
            return invalid_input(fmt::format("turn {} of '{}': a {} row follows a {} row; requests and replies must alternate",
                                             entry.turn, name, entry.role, before.role));
        }
    } else if (entry.role != "user") {
        return invalid_input(fmt::format("conversation '{}' begins with a {} row, expected user", name, entry.role));
    }
    if (const Json* system = member(row, "system"); system != nullptr && system->is_string() && conversation.system.empty()) {
        conversation.system = system->get<std::string>();
    }
    if (const Json* tools = member(row, "tools"); tools != nullptr && tools->is_array() && conversation.tools.is_null()) {
        conversation.tools = *tools;
    }
    conversation.rows.push_back(std::move(entry));
    return {};
}

}  // namespace

size_t Dataset::n_requests() const {
    size_t n = 0;
    for (const Conversation& conversation : conversations) n += std::ranges::count_if(conversation.rows, &DatasetRow::is_request);
    return n;
}

Result<Dataset> parse_dataset(std::string_view jsonl, std::string_view what) {
    Dataset dataset;
    size_t line_number = 0;
    while (!jsonl.empty()) {
        const size_t end = jsonl.find('\n');
        std::string_view line = jsonl.substr(0, end);
        jsonl = end == std::string_view::npos ? std::string_view() : jsonl.substr(end + 1);
        ++line_number;
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
        TRY_ASSIGN(const Json row, parse_json(line, fmt::format("{} line {}", what, line_number)));
        if (const Status added = add_row(dataset, row); !added) {
            return invalid_input(fmt::format("{} line {}: {}", what, line_number, added.error().message));
        }
    }
    if (dataset.conversations.empty()) return invalid_input(fmt::format("{}: no conversation found; expected JSON lines", what));
    return dataset;
}

Result<Dataset> load_dataset(const std::string& path) {
    TRY_ASSIGN(const std::string text, read_file(path, kDatasetBytesMax));
    return parse_dataset(text, path);
}

text::Value template_message(const Json& message) {
    const auto parsed = text::parse_json_value(dump_json(message), "message");
    CHECK(parsed.has_value(), "a message that was parsed once is JSON");
    const text::Value* calls = parsed->find("tool_calls");
    if (calls == nullptr || calls->as_list() == nullptr) return *parsed;
    text::ValueList new_calls;
    for (const text::Value& call : *calls->as_list()) {
        const text::Value* function = call.find("function");
        const text::Value* arguments = function != nullptr ? function->find("arguments") : nullptr;
        if (arguments == nullptr || arguments->as_string() == nullptr) {
            new_calls.push_back(call);
            continue;
        }
        const auto object = text::parse_json_value(*arguments->as_string(), "arguments");
        if (!object || object->as_dict() == nullptr) {
            new_calls.push_back(call);
            continue;
        }
        text::ValueDict new_function = *function->as_dict();
        for (auto& [key, value] : new_function) {
            if (key == "arguments") value = *object;
        }
        text::ValueDict new_call = *call.as_dict();
        for (auto& [key, value] : new_call) {
            if (key == "function") value = text::Value(new_function);
        }
        new_calls.push_back(text::Value(std::move(new_call)));
    }
    text::ValueDict fields = *parsed->as_dict();
    for (auto& [key, value] : fields) {
        if (key == "tool_calls") value = text::Value(new_calls);
    }
    return text::Value(std::move(fields));
}

Json assistant_message(const DatasetRow& row) {
    Json message{{"role", "assistant"}};
    for (const char* key : {"content", "tool_calls", "reasoning_content"}) {
        if (const Json* value = member(row.fields, key)) message[key] = *value;
    }
    return message;
}

History::History(const Conversation& conversation) {
    if (!conversation.system.empty()) add(Json{{"role", "system"}, {"content", conversation.system}});
}

void History::append(const DatasetRow& row) {
    if (row.role == "user") return add(Json{{"role", "user"}, {"content", row.fields["content"]}});
    if (row.role == "assistant") return add(assistant_message(row));
    for (const Json& result : row.fields["tool_results"]) {
        add(Json{{"role", "tool"}, {"content", result["content"]}, {"tool_call_id", result["tool_call_id"]}});
    }
}

void History::add(const Json& message) {
    if (!json_.empty()) json_ += ',';
    json_ += dump_json(message);
    values_.push_back(template_message(message));
}

}  // namespace espalier::bench
