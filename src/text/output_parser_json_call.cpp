// A call written as one JSON object with a name and arguments (Hermes, Llama 3), or a list of such objects.
//
// Nothing is consumed until the call is confirmed: in a wrapper by its name; without one by a declared name and the key of its
// arguments, because a JSON object in an answer is more often just JSON. Until then anything unexpected makes it text. Afterwards
// the arguments stream, and what is broken is repaired. Accepted spellings: arguments or parameters, before or after the name,
// as an object or as its JSON text; {"type": "function", "function": {…}}; other members are skipped.
#include <algorithm>

#include "base/json.h"
#include "text/output_parser_machine.h"

namespace espalier::text {
namespace {

constexpr size_t kKeyBytesMax = 64;  // longer keys are cut; none that matters is longer

}  // namespace

OutputMachine::Step OutputMachine::begin_json_call(size_t n_before, bool is_wrapped) {
    json_call_ = JsonCall();
    json_call_.cursor = pos_ + n_before;
    json_call_.is_wrapped = is_wrapped;
    mode_ = Mode::json_call;
    return Step::advance;
}

OutputMachine::Step OutputMachine::step_json_call() {
    using State = JsonCall::State;
    while (json_call_.cursor < buffer_.size()) {
        const char c = buffer_[json_call_.cursor];
        if (is_marker_symbol(c)) {
            const Step result = json_call_marker(c);
            if (result != Step::advance) {
                flush_json_arguments();
                return result;
            }
            if (mode_ != Mode::json_call) return result;
            continue;
        }
        const bool is_argument = json_call_.state == State::value && json_call_.field == JsonCall::Field::arguments;
        const bool was_confirmed = json_call_.is_confirmed;
        const bool fits = json_call_char(c);
        if (!fits && !json_call_.is_confirmed) return reject_json_call();
        if (!was_confirmed && !json_call_.is_confirmed && mode_ == Mode::json_call) {
            ++json_call_.cursor;
            continue;
        }
        take_json_symbols(json_call_.cursor + 1 - pos_, fits, is_argument);
        json_call_.cursor = pos_;
        if (mode_ != Mode::json_call) return Step::advance;
    }
    flush_json_arguments();
    if (!is_at_end_) return Step::wait;
    return json_call_.is_confirmed ? Step::advance : reject_json_call();
}

void OutputMachine::take_json_symbols(size_t n_symbols, bool fits, bool is_argument) {
    if (!fits) {
        take_repair(n_symbols, "broken_json");
    } else if (is_argument) {
        sink_.count_arguments(n_symbols);
        pos_ += n_symbols;
    } else {
        take_framing(n_symbols);
    }
}

// Inside a string a marker is text, except a </tool_call> before a line break or the end: JSON strings hold no raw line breaks,
// so the string lost its quote. Outside, the wrapper's markers end the call.
OutputMachine::Step OutputMachine::json_call_marker(char symbol) {
    if (!json_call_.is_confirmed) return reject_json_call();
    const std::string_view after = rest().substr(1);
    bool is_text = json_call_.state == JsonCall::State::value && json_.in_string();
    if (is_text && symbol == kCallClose) {
        if (after.empty() && !is_at_end_) return Step::wait;
        is_text = !after.empty() && after[0] != '\n' && after[0] != '\r';
    }
    if (is_text) {
        json_.feed_text(marker_text(*format_, symbol), json_out_);
        sink_.count_arguments(marker_text(*format_, symbol).size());
        ++pos_;
    } else if (symbol == kThinkOpen || symbol == kThinkClose) {
        take_repair(1, "think_tag_in_call");
    } else {
        sink_.repair("missing_json_close");
        end_json_call();
    }
    json_call_.cursor = pos_;
    return Step::advance;
}

// One byte; false if it does not fit.
bool OutputMachine::json_call_char(char c) {
    using State = JsonCall::State;
    if (is_space(c) && json_call_.state != State::key && json_call_.state != State::value) return true;
    switch (json_call_.state) {
        case State::object:
            if (c == '[' && !json_call_.is_list) {
                json_call_.is_list = true;
                return true;
            }
            json_call_.state = State::key_or_end;
            return c == '{';
        case State::key_or_end:
            if (c == '}') return json_object_ended();
            json_call_.key.clear();
            if (c == '"') json_call_.state = State::key;
            return c == '"' || c == ',';
        case State::key:
        case State::colon: return json_key_char(c);
        case State::value: return json_value_char(c);
        case State::after_value:
            if (c == ',') json_call_.state = State::key_or_end;
            return c == '}' ? json_object_ended() : c == ',';
        case State::after_object:
            if (c == ']') {
                mode_ = Mode::text;
                return true;
            }
            if (c == ',') json_call_.state = State::object;
            return c == ',';
    }
    return false;
}

bool OutputMachine::json_key_char(char c) {
    if (json_call_.state == JsonCall::State::key) {
        if (c == '"') {
            json_call_.state = JsonCall::State::colon;
        } else if (json_call_.key.size() < kKeyBytesMax) {
            json_call_.key += c;
        }
        return true;
    }
    if (c != ':') return false;
    const std::string& key = json_call_.key;
    json_call_.field = JsonCall::Field::other;
    if ((key == "name" || key == "function") && json_call_.name.empty()) json_call_.field = JsonCall::Field::name;
    if ((key == "arguments" || key == "parameters") && !json_call_.has_arguments_key) {
        json_call_.field = JsonCall::Field::arguments;
        json_call_.has_arguments_key = true;
    }
    json_ = JsonTranscoder();
    json_out_.clear();
    json_call_.state = JsonCall::State::value;
    return confirm_json_call();
}

bool OutputMachine::json_value_char(char c) {
    if (json_.root() == JsonTranscoder::Root::none && json_call_.key == "function" && c == '{') {
        ++json_call_.n_nested;
        json_call_.state = JsonCall::State::key_or_end;
        return true;
    }
    const bool is_taken = json_.feed(c, json_out_);
    if (json_.is_done() && !json_value_ended()) return false;
    return is_taken || json_call_char(c);
}

// False: this cannot be a call.
bool OutputMachine::json_value_ended() {
    json_call_.state = JsonCall::State::after_value;
    std::string json = std::move(json_out_);
    json_out_.clear();
    if (json_call_.field == JsonCall::Field::name) {
        const auto name = parse_json(json, "call name");
        if (json_.is_broken() || !name || !name->is_string()) return false;
        json_call_.name = name->get<std::string>();
        const bool has_space = std::any_of(json_call_.name.begin(), json_call_.name.end(), is_space);
        if (json_call_.name.empty() || (has_space && tools_.find(json_call_.name) == nullptr)) return false;
        return confirm_json_call();
    }
    if (json_call_.field != JsonCall::Field::arguments) return true;
    note_json_repairs();
    if (json_.root() == JsonTranscoder::Root::string) {
        // The arguments as their own JSON text.
        const auto inner = parse_json(json, "call arguments");
        const std::string text = inner && inner->is_string() ? inner->get<std::string>() : std::string();
        const TypedValue typed = type_value(text, TypeSet(TypeSet::object));
        if (text.empty()) {
            json.clear();
        } else if (typed.json.front() == '{') {
            sink_.repair("double_encoded_value");
            json = typed.json;
        }
    } else if (json == "null") {
        json.clear();
    }
    if (json_call_.is_confirmed && !json.empty()) write_last_arguments(json);
    if (!json_call_.is_confirmed) json_call_.arguments = std::move(json);
    return true;
}

// Confirms the call if everything needed is there; false if it can never be one.
bool OutputMachine::confirm_json_call() {
    if (json_call_.is_confirmed || json_call_.name.empty()) return true;
    const bool is_declared = tools_.find(json_call_.name) != nullptr;
    if (!is_declared && (in_reasoning_ || !json_call_.is_wrapped)) return false;
    if (!json_call_.is_wrapped && !json_call_.has_arguments_key) return true;
    json_call_.is_confirmed = true;
    in_wrapper_ = in_wrapper_ || (json_call_.is_wrapped && !format_->call_close.empty());
    begin_call(json_call_.name, json_call_.cursor - pos_);
    if (format_->syntax == ToolSyntax::qwen_xml) sink_.repair("other_dialect");
    has_json_body_ = true;
    if (!json_call_.arguments.empty()) write_last_arguments(json_call_.arguments);
    return true;
}

bool OutputMachine::json_object_ended() {
    if (json_call_.n_nested > 0) {
        --json_call_.n_nested;
        json_call_.state = JsonCall::State::after_value;
        return true;
    }
    if (!json_call_.is_confirmed) return false;
    const bool is_list = json_call_.is_list;
    const bool is_wrapped = json_call_.is_wrapped;
    end_call();
    if (is_list) {
        const size_t cursor = json_call_.cursor;
        json_call_ = JsonCall();
        json_call_.cursor = cursor;
        json_call_.is_list = true;
        json_call_.is_wrapped = is_wrapped;
        json_call_.state = JsonCall::State::after_object;
        mode_ = Mode::json_call;
    }
    return true;
}

// What was read is text, or, between the calls of a list, the end of the list.
OutputMachine::Step OutputMachine::reject_json_call() {
    const bool is_list_over = is_after_call_ && json_call_.cursor == pos_;
    is_plain_ = !is_list_over;
    n_rejected_ = json_call_.cursor - pos_;
    mode_ = Mode::text;
    json_out_.clear();
    return Step::advance;
}

// The call ends here, whatever is open.
void OutputMachine::end_json_call() {
    if (json_call_.state == JsonCall::State::value) {
        json_.close(json_out_);
        json_value_ended();
    }
    end_call();
}

// Arguments that are an object or a list stream; others wait for their end.
void OutputMachine::flush_json_arguments() {
    using Root = JsonTranscoder::Root;
    const bool streams = json_call_.is_confirmed && json_call_.state == JsonCall::State::value &&
                         json_call_.field == JsonCall::Field::arguments &&
                         (json_.root() == Root::object || json_.root() == Root::array);
    if (!streams) return;
    sink_.arguments(json_out_);
    json_out_.clear();
}

}  // namespace espalier::text
