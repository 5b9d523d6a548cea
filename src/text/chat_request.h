// The neutral form of a chat request, whatever API dialect it came from, with its history repaired so that strict
// templates render it. Dialects in server/ produce it; nothing below text/ sees JSON of the wire.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/chat_template.h"
#include "text/chat_value.h"
#include "text/tokenizer.h"

namespace espalier::text {

struct ToolCallMessage {
    std::string id;
    std::string name;
    std::string arguments;  // JSON text as sent
};

struct ChatMessage {
    std::string role;  // system, developer, user, assistant, tool
    // Text content; parts are joined without separator. nullopt = null or absent.
    std::optional<std::string> content;
    std::optional<std::string> reasoning_content;
    std::vector<ToolCallMessage> tool_calls;
    std::string tool_call_id;
    std::string name;
};

enum class Thinking { on, off, unspecified };

struct ChatRequest {
    std::vector<ChatMessage> messages;
    std::vector<Value> tools;  // each {"type": "function", "function": {…}}, key order as sent
    Thinking thinking = Thinking::unspecified;
    ValueDict template_kwargs;  // further chat_template_kwargs, passed through
    bool add_generation_prompt = true;
    bool continue_final_message = false;
};

// What was changed in a history so that the template accepts it; counted in metrics, logged at debug level.
struct HistoryRepairs {
    int arguments_wrapped = 0;       // history arguments that were no JSON object
    int system_messages_moved = 0;   // late or further system/developer messages merged or rendered as user text
    int user_message_added = 0;      // no user query in the history
    int volatile_lines_blanked = 0;  // per-request header values that would destroy prefix reuse
};

// How much of a prompt stays as it is when the conversation goes on with a reply and then a message of this role.
struct StableBoundary {
    enum class Follower { tool, user };
    int32_t tokens = 0;
    Follower follower = Follower::tool;
    bool operator==(const StableBoundary&) const = default;
};

struct RenderedPrompt {
    std::string text;
    std::vector<TokenId> ids;
    // Where a later request of this conversation is likely to continue, ascending by tokens: see render_chat.
    std::vector<StableBoundary> stable_boundaries;
    HistoryRepairs repairs;
};

// Repairs the history (arguments JSON text -> objects, late or several system messages, developer role, null content) and
// renders. Stable boundaries are found by rendering, never by rule: the history is rendered again followed by a dummy assistant
// reply (with its reasoning, and without) and then a tool message, respectively a user message; the longest common token prefix
// of the prompt with each is a boundary.
// Errors: invalid_input (template refused; its words), exhausted (limits).
Result<RenderedPrompt> render_chat(const ChatTemplate& chat_template, const Tokenizer& tokenizer, const ChatRequest& request);

// Only the text, as /apply-template shows it.
Result<std::string> render_chat_text(const ChatTemplate& chat_template, const ChatRequest& request,
                                     HistoryRepairs* repairs = nullptr);

}  // namespace espalier::text
