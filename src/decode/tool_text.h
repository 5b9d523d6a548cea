// The fixed text of tool calls as token strings, from the model's tool format and the names of the request's tools: what must
// come next, or may, once a call has begun. Literal pieces are tokenised as they stand in a whole reply; a token at an edge that
// could merge with unknown text is left out.
//
// A string is followed when the reply so far ends in its beginning. So there is no state to keep, and text that only looks like a
// call costs a few wrong drafts at most.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "decode/sampler.h"
#include "text/tokenizer.h"
#include "text/tool_format.h"
#include "text/tool_outline.h"

namespace espalier::decode {

class ToolText {
public:
    ToolText(const text::Tokenizer& tokenizer, const text::ToolFormat& format, const std::vector<text::ToolOutline>& tools);

    // Where a continuation stands; each place has its own odds.
    enum class Place : uint8_t {
        reply_start,    // nothing has been said: a call may begin
        after_thought,  // the think block has just been closed: the same
        call_head,      // inside of <tool_call> ... up to the first value
        value_end,      // a line has ended inside of a call: the value may be over
        call_tail,      // the end of a value has begun
        call_end,       // a whole call: another one may follow
    };
    static constexpr size_t kPlaces = 6;
    struct Candidate {
        TokenId token = 0;
        Place place = Place::reply_start;
    };
    static constexpr int32_t kCandidatesMax = 16;
    // Distinct tokens that may come next after reply + path. Returns how many; at most out.size().
    int32_t candidates(std::span<const TokenId> reply, std::span<const TokenId> path, std::span<Candidate> out) const;

private:
    struct Chain {
        std::vector<TokenId> tokens;
        size_t first = 0;  // position of the first token that may be proposed
        Place place = Place::call_head;
        bool starts_reply = false;  // position 0 may be proposed where the reply is empty
        bool follows_line = false;  // the token before the chain ends in a line break: it may be part of a value
    };
    struct Context;
    void add(const text::Tokenizer& tokenizer, const std::string& literal, Chain chain);
    void add_qwen_xml(const text::Tokenizer& tokenizer, const text::ToolOutline& tool);
    void add_hermes_json(const text::Tokenizer& tokenizer, const text::ToolOutline& tool);
    bool ends_line(TokenId token) const;
    bool is_in_call(const Context& context) const;
    bool follows(const Chain& chain, size_t position, const Context& context) const;

    std::vector<Chain> chains_;
    size_t n_tokens_ = 0;
    text::ToolFormat format_;
    TokenId call_open_ = -1;
    TokenId call_close_ = -1;
    std::vector<bool> line_enders_;  // per id
};

}  // namespace espalier::decode
