// Token ids of a text and back, for clients that count or check.
#include <fmt/format.h>

#include <limits>

#include "server/json_fields.h"
#include "server/service.h"

namespace espalier::server {
namespace {

// A token's bytes as text, or as an array of numbers where they are not UTF-8 by themselves.
Json piece_json(const text::Tokenizer& tokenizer, text::TokenId id) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    if (tokenizer.decode({id}) == bytes) return std::string(bytes);
    Json numbers = Json::array();
    for (const char c : bytes) numbers.push_back(static_cast<unsigned char>(c));
    return numbers;
}

}  // namespace

Outcome handle_tokenize(Service& service, const HandlerContext& context, const HttpRequest& request) {
    text::Value root;
    if (auto error = parse_body(request.body, service.options().limits, root)) return error_response(*error);
    ReadState state;
    FieldReader reader(*root.as_dict(), "", state);
    std::string content;
    bool add_special = false;  // this family has no token to add
    bool parse_special = true;
    bool with_pieces = false;
    if (!reader.string("content", content)) state.fail(bad_value("content", "content: expected a string"));
    reader.boolean("add_special", add_special);
    reader.boolean("parse_special", parse_special);
    reader.boolean("with_pieces", with_pieces);
    reader.finish();
    if (state.error) return error_response(*state.error);
    service.warn_unknown_fields(request.path, state.unknown_fields);
    const text::Tokenizer& tokenizer = *context->tokenizer;
    Json tokens = Json::array();
    for (const text::TokenId id :
         tokenizer.encode(content, parse_special ? text::SpecialTokens::all : text::SpecialTokens::non_control)) {
        if (with_pieces) {
            tokens.push_back({{"id", id}, {"piece", piece_json(tokenizer, id)}});
        } else {
            tokens.push_back(id);
        }
    }
    HttpResponse response;
    response.body = dump_json(Json{{"tokens", std::move(tokens)}});
    return response;
}

Outcome handle_detokenize(Service& service, const HandlerContext& context, const HttpRequest& request) {
    text::Value root;
    if (auto error = parse_body(request.body, service.options().limits, root)) return error_response(*error);
    ReadState state;
    FieldReader reader(*root.as_dict(), "", state);
    const text::ValueList* tokens = reader.list("tokens");
    reader.finish();
    if (tokens == nullptr) state.fail(bad_value("tokens", "tokens: expected an array of token ids"));
    if (state.error) return error_response(*state.error);
    service.warn_unknown_fields(request.path, state.unknown_fields);
    std::vector<text::TokenId> ids;
    for (size_t i = 0; i < tokens->size(); ++i) {
        const int64_t* id = (*tokens)[i].as_int();
        if (id == nullptr || *id < 0 || *id >= context->tokenizer->vocab_size()) {
            return error_response(bad_value(fmt::format("tokens[{}]", i), fmt::format("tokens[{}]: expected an id from 0 to {}",
                                                                                      i, context->tokenizer->vocab_size() - 1)));
        }
        ids.push_back(static_cast<text::TokenId>(*id));
    }
    HttpResponse response;
    response.body = dump_json(Json{{"content", context->tokenizer->decode(ids)}});
    return response;
}

}  // namespace espalier::server
