#include "probe/tokenize_command.h"

#include <fmt/format.h>

#include <istream>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "base/json.h"

namespace espalier::probe {
namespace {

using text::SkipSpecial;
using text::SpecialTokens;
using text::TokenId;

constexpr uint64_t kIdMax = std::numeric_limits<TokenId>::max();
constexpr int64_t kIdMin = std::numeric_limits<TokenId>::min();

// The member, or nullptr when the line does not have it.
const Json* member(const Json& line, const char* name) {
    const auto found = line.find(name);
    return found == line.end() ? nullptr : &*found;
}

Result<SpecialTokens> read_special(const Json& line) {
    const Json* value = member(line, "special");
    if (value == nullptr || *value == "all") return SpecialTokens::all;
    if (*value == "non_control") return SpecialTokens::non_control;
    if (*value == "none") return SpecialTokens::none;
    return invalid_input(fmt::format("\"special\" is \"all\", \"non_control\" or \"none\", found {}", dump_json(*value)));
}

Result<Json> tokenize(const text::Tokenizer& tokenizer, const Json& line) {
    const Json* content = member(line, "text");
    if (content == nullptr || !content->is_string()) return invalid_input("\"text\" with a string is expected");
    TRY_ASSIGN(const SpecialTokens special, read_special(line));
    return Json{{"ids", tokenizer.encode(content->get_ref<const std::string&>(), special)}};
}

Result<std::vector<TokenId>> read_ids(const Json& line) {
    const Json* list = member(line, "ids");
    if (list == nullptr || !list->is_array()) return invalid_input("\"ids\" with an array of integers is expected");
    std::vector<TokenId> ids;
    for (const Json& value : *list) {
        const bool is_id = value.is_number_unsigned() ? value.get<uint64_t>() <= kIdMax
                                                      : value.is_number_integer() && value.get<int64_t>() >= kIdMin;
        if (!is_id) return invalid_input(fmt::format("\"ids\" holds {}, which is not a token id", dump_json(value)));
        ids.push_back(value.get<TokenId>());
    }
    return ids;
}

Result<Json> detokenize(const text::Tokenizer& tokenizer, const Json& line) {
    TRY_ASSIGN(const std::vector<TokenId> ids, read_ids(line));
    const Json* skip_value = member(line, "skip_special");
    if (skip_value != nullptr && !skip_value->is_boolean()) return invalid_input("\"skip_special\" is true or false");
    const SkipSpecial skip = skip_value != nullptr && skip_value->get<bool>() ? SkipSpecial::yes : SkipSpecial::no;
    text::DecodeStream stream(tokenizer, skip);
    Json pieces = Json::array();
    for (const TokenId id : ids) pieces.push_back(stream.push(id));
    return Json{{"text", tokenizer.decode(ids, skip)}, {"pieces", std::move(pieces)}, {"flush", stream.flush()}};
}

template <class Answer>
Status answer_lines(const text::Tokenizer& tokenizer, std::istream& in, std::ostream& out, Answer answer) {
    size_t n_lines = 0;
    for (std::string text; std::getline(in, text);) {
        ++n_lines;
        if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
        const std::string where = fmt::format("line {}", n_lines);
        TRY_ASSIGN(const Json line, parse_json(text, where));
        if (!line.is_object()) return invalid_input(fmt::format("{}: a JSON object is expected", where));
        auto reply = answer(tokenizer, line);
        if (!reply) return Error{reply.error().code, fmt::format("{}: {}", where, reply.error().message)};
        out << dump_json(*reply) << '\n' << std::flush;
    }
    return {};
}

}  // namespace

Status run_tokenize(const text::Tokenizer& tokenizer, std::istream& in, std::ostream& out) {
    return answer_lines(tokenizer, in, out, tokenize);
}

Status run_detokenize(const text::Tokenizer& tokenizer, std::istream& in, std::ostream& out) {
    return answer_lines(tokenizer, in, out, detokenize);
}

}  // namespace espalier::probe
