// Token counts on the client's side: of prompts (for the part that is new since the previous request) and of replies, as the
// official harness counts them. Either from a tokenizer and template at hand, or from the server's /apply-template and /tokenize.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "bench/dataset.h"
#include "bench/http_client.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace espalier::bench {

class TokenCounter {
public:
    virtual ~TokenCounter() = default;

    // Ids of the prompt that these messages give (generation prompt on, thinking off). Errors: the template's or the server's
    // words.
    virtual Result<std::vector<text::TokenId>> prompt_ids(const Conversation& conversation, const History& history) = 0;

    // Tokens of an assistant message: the rendered message after an empty user message, without the frame of an empty one.
    virtual Result<int64_t> message_tokens(const Json& assistant) = 0;

    // Tokens of plain text.
    virtual Result<int64_t> text_tokens(const std::string& text) = 0;

    // "tokenizer.json and template" or "the server's endpoints", for reports.
    virtual std::string source() const = 0;
};

// Errors: those of loading the two files.
Result<std::unique_ptr<TokenCounter>> local_token_counter(const std::string& tokenizer_path, const std::string& template_path);

// Null when the server has no usable endpoints. The client must outlive the counter.
std::unique_ptr<TokenCounter> server_token_counter(HttpClient& client, const std::string& api_key, double timeout_s);

// The length of the longest common prefix.
int64_t common_prefix(const std::vector<text::TokenId>& a, const std::vector<text::TokenId>& b);

// Tokens of a reply by the harness' rule: plain text as it is, with reasoning or calls by the template.
// {"role": "assistant", "content", "reasoning_content"?, "tool_calls"?}
Result<int64_t> reply_tokens(TokenCounter& counter, const Json& assistant);

}  // namespace espalier::bench
