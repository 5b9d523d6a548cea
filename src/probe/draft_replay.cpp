#include "probe/draft_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "decode/merged_drafts.h"
#include "text/prompt_boundaries.h"

namespace espalier::probe {
namespace {

using text::TokenId;

constexpr std::string_view kMessageEnd = "<|im_end|>";

struct Turn {
    std::vector<TokenId> prompt;
    std::vector<TokenId> reply;
    size_t head = 0;  // tokens of the reply up to the first value of a call, 0 = it does not begin with a call
};

struct Totals {
    int64_t turns = 0;
    int64_t reply_tokens = 0;
    int64_t rounds = 0;
    int64_t nodes = 0;
    int64_t passes = 0;  // that could carry drafts
    int64_t accepted_in_prefill = 0;
    int64_t heads = 0;
    int64_t heads_in_prefill = 0;
    decode::DraftCounts counts;
    std::chrono::steady_clock::duration draft_time{};
};

Result<std::string> render(const text::ChatTemplate& chat_template, const bench::Conversation& conversation,
                           text::ValueList messages, bool is_prompt) {
    text::Value tools = text::Value::none();
    if (!conversation.tools.is_null()) {
        TRY_ASSIGN(tools, text::parse_json_value(dump_json(conversation.tools), "tools"));
    }
    text::ValueDict context = {{"messages", text::Value(std::move(messages))},
                               {"tools", std::move(tools)},
                               {"documents", text::Value::none()},
                               {"add_generation_prompt", text::Value(is_prompt)},
                               {"enable_thinking", text::Value(false)}};
    return chat_template.render(text::Value(std::move(context)));
}

// The text before the first value of a call that opens the reply.
size_t head_bytes(const std::string& reply) {
    if (!reply.starts_with("<tool_call>")) return 0;
    const size_t parameter = reply.find("<parameter=");
    const size_t end = parameter == std::string::npos ? std::string::npos : reply.find(">\n", parameter);
    return end == std::string::npos ? 0 : end + 2;
}

// The prompt of a recorded reply, and the reply as the model would have to write it: without reasoning, as the prompt asks.
Result<Turn> make_turn(const DraftReplayOptions& options, const bench::Conversation& conversation, const bench::History& history,
                       const bench::DatasetRow& row) {
    TRY_ASSIGN(const std::string prompt, render(*options.chat_template, conversation, history.messages(), true));
    Json assistant = bench::assistant_message(row);
    assistant.erase("reasoning_content");
    text::ValueList messages = history.messages();
    messages.push_back(bench::template_message(assistant));
    TRY_ASSIGN(const std::string whole, render(*options.chat_template, conversation, std::move(messages), false));
    if (!whole.starts_with(prompt)) {
        return unsupported(fmt::format("{}, turn {}: the template writes a reply differently from its own generation prompt",
                                       conversation.id, row.turn));
    }
    std::string reply = whole.substr(prompt.size());
    reply.resize(std::min(reply.size(), reply.find(kMessageEnd)));
    Turn turn;
    turn.prompt = text::encode_prompt(*options.tokenizer, prompt);
    turn.reply = options.tokenizer->encode(reply);
    size_t bytes = 0;
    for (const size_t head = head_bytes(reply); bytes < head; ++turn.head)
        bytes += options.tokenizer->token_bytes(turn.reply[turn.head]).size();
    return turn;
}

// What StepLoop does, with the record in the place of the model.
void replay(const Turn& turn, decode::DraftSession* session, Totals& totals) {
    const auto n_reply = turn.reply.size();
    decode::DraftTree tree(decode::kDraftNodesMax);
    std::vector<int32_t> path;
    size_t n = 0;
    for (bool is_prefill = true, is_done = false; !is_done; is_prefill = false) {
        tree.clear();
        path.clear();
        const auto reply = std::span(turn.reply).first(n);
        const decode::DraftLimits limits{decode::kDraftNodesMax, static_cast<int32_t>(n_reply - n) + 1, 1,
                                         static_cast<int32_t>(turn.prompt.size() + n)};
        const auto begin = std::chrono::steady_clock::now();
        if (session != nullptr) session->propose(reply, nullptr, limits, tree);
        for (int32_t node = -1;;) {
            if (n == n_reply) {
                is_done = true;  // the end of the message is chosen
                break;
            }
            node = tree.child(node, turn.reply[n++]);
            if (node < 0) break;
            path.push_back(node);
        }
        if (session != nullptr) session->observe(std::span(turn.reply).first(n), tree, path);
        totals.draft_time += std::chrono::steady_clock::now() - begin;
        count_drafts(tree, path, totals.counts);
        totals.rounds += is_prefill ? 0 : 1;
        totals.nodes += tree.size();
        ++totals.passes;
        if (!is_prefill) continue;
        totals.accepted_in_prefill += static_cast<int64_t>(path.size());
        if (turn.head == 0) continue;
        ++totals.heads;
        totals.heads_in_prefill += path.size() >= turn.head ? 1 : 0;
    }
    ++totals.turns;
    totals.reply_tokens += static_cast<int64_t>(n_reply);
}

double share(int64_t part, int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

Json report(const Totals& totals, const DraftReplayOptions& options) {
    return Json{
        {"draft", options.draft.text()},
        {"nodes_max", options.nodes_max},
        {"turns", totals.turns},
        {"reply_tokens", share(totals.reply_tokens, totals.turns)},
        {"plain_rounds", share(totals.reply_tokens, totals.turns)},
        {"rounds", share(totals.rounds, totals.turns)},
        {"nodes", share(totals.nodes, totals.passes)},
        {"drafted", totals.counts.drafted},
        {"accepted", totals.counts.accepted},
        {"sources", draft_sources_json(totals.counts)},
        {"accepted_in_prefill", share(totals.accepted_in_prefill, totals.turns)},
        {"heads", totals.heads},
        {"heads_in_prefill", share(totals.heads_in_prefill, totals.heads)},
        {"draft_us", share(std::chrono::duration_cast<std::chrono::microseconds>(totals.draft_time).count(), totals.passes)}};
}

}  // namespace

Json draft_sources_json(const decode::DraftCounts& counts) {
    Json sources = Json::object();
    for (int32_t kind = 0; kind < decode::kDraftKinds; ++kind) {
        const auto at = static_cast<size_t>(kind);
        if (counts.drafted_by[at] == 0) continue;
        sources[to_string(static_cast<decode::DraftKind>(kind))] =
            Json{{"drafted", counts.drafted_by[at]}, {"accepted", counts.accepted_by[at]}};
    }
    return sources;
}

Result<Json> replay_drafts(const bench::Dataset& dataset, const DraftReplayOptions& options) {
    decode::Drafting::Parts parts;
    parts.options = options.draft;
    // auto: what text alone can draft.
    if (parts.options.has_mtp && !parts.options.has_suffix && !parts.options.has_template)
        return unsupported("draft-replay: mtp needs a model; use suffix, template, prefill");
    parts.options.has_mtp = false;
    parts.tokenizer = options.tokenizer.get();
    parts.tool_format = text::detect_tool_format(options.chat_template->source());
    parts.nodes_unmeasured = options.nodes_max;
    decode::Drafting drafting(std::move(parts));
    const TokenId stop_ids[] = {options.tokenizer->added_token_id(kMessageEnd)};
    Totals totals;
    for (const bench::Conversation& conversation : dataset.conversations) {
        std::vector<text::ToolOutline> tools;
        if (!conversation.tools.is_null()) {
            TRY_ASSIGN(const text::Value list, text::parse_json_value(dump_json(conversation.tools), "tools"));
            if (list.as_list() != nullptr) tools = text::outline_tools(*list.as_list());
        }
        bench::History history(conversation);
        for (const bench::DatasetRow& row : conversation.rows) {
            if (!row.is_request()) {
                TRY_ASSIGN(const Turn turn, make_turn(options, conversation, history, row));
                const auto session =
                    drafting.begin({turn.prompt, static_cast<int32_t>(turn.reply.size()) + 1, &tools, stop_ids, nullptr});
                replay(turn, session.get(), totals);
            }
            history.append(row);
        }
    }
    return report(totals, options);
}

}  // namespace espalier::probe
