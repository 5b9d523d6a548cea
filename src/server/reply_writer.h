// A dialect's way of writing a reply: as a stream of server-sent events, or whole. The generation drives it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/api_error.h"
#include "text/output_parser.h"

namespace espalier::server {

struct ReplyCall {
    std::string id;
    std::string name;
    std::string arguments;
};

// What one choice has said so far; complete when finish_reason is set.
struct ChoiceReply {
    std::string content;
    std::string reasoning;
    std::vector<ReplyCall> calls;
    std::vector<engine::TokenLogprob> logprobs;
    std::string finish_reason;
};

// One delta with what belongs to it.
struct ReplyDelta {
    int choice = 0;
    const text::OutputDelta& delta;
    const std::string& call_id;                         // of the call the delta belongs to, else empty
    const std::vector<engine::TokenLogprob>& logprobs;  // of the tokens since the last delta of the choice
};

class ReplyWriter {
public:
    virtual ~ReplyWriter() = default;

    // Streaming; each appends whole events to `out`.
    virtual void begin(std::string& out) = 0;
    virtual void write_delta(const ReplyDelta& delta, std::string& out) = 0;
    // totals: given with the choice that ends last, else nullptr. logprobs: those not yet written.
    virtual void end_choice(int choice, const ChoiceReply& reply, const std::vector<engine::TokenLogprob>& logprobs,
                            const engine::Timings* totals, std::string& out) = 0;
    virtual void end(const engine::Timings& totals, std::string& out) = 0;
    virtual void write_error(const ApiError& error, std::string& out) = 0;

    // The whole answer as one JSON document.
    virtual std::string whole(const std::vector<ChoiceReply>& choices, const engine::Timings& totals) = 0;
};

}  // namespace espalier::server
