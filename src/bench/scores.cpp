// Source: mlcommons/endpoints (commit ea332753), AgenticInferenceInlineScorer.score. Conversations named sim_<n> are scored there
// by intent codes instead; the edge workload has none, and such turns count here as what their tool calls say.
#include "bench/scores.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>

#include "bench/iou.h"

namespace espalier::bench {
namespace {

struct Repeat {
    std::string conversation;
    int64_t repeat = 1;
};

Repeat split_repeat(const std::string& name) {
    static constexpr std::string_view kMark = "__repeat_";
    const size_t at = name.rfind(kMark);
    if (at == std::string::npos || at + kMark.size() == name.size()) return {name, 1};
    const std::string_view digits = std::string_view(name).substr(at + kMark.size());
    int64_t repeat = 0;
    const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), repeat);
    const bool is_number = ec == std::errc() && end == digits.data() + digits.size() && digits.front() != '-';
    return is_number ? Repeat{name.substr(0, at), repeat} : Repeat{name, 1};
}

using ExpectedKey = std::pair<std::string, int64_t>;        // conversation, client turn
using TurnKey = std::tuple<std::string, int64_t, int64_t>;  // conversation, repeat, client turn

struct Totals {
    int64_t missing = 0;
    int64_t scored = 0;
    double score = 0;
};

Json score_turn(const TurnKey& key, const ExpectedTurn& truth, const std::optional<Json>& reply, Totals& totals) {
    Json row{{"conversation_id", std::get<0>(key)},
             {"repeat", std::get<1>(key)},
             {"turn", truth.assistant_turn},
             {"domain", "coding"}};
    if (!reply) {
        row["missing"] = true;
        ++totals.missing;
    }
    const std::vector<std::string> recorded = bash_actions(truth.tool_calls);
    const std::vector<std::string> produced = reply ? bash_actions(merge_tool_calls(*reply)) : std::vector<std::string>();
    const double score = multiset_iou(recorded, produced);
    row["gt_actions"] = recorded;
    row["model_actions"] = produced;
    row["score"] = round_decimal(score, 4);
    totals.score += score;
    ++totals.scored;
    return row;
}

}  // namespace

void append_expected(const Conversation& conversation, std::vector<ExpectedTurn>& out) {
    for (size_t i = 0; i + 1 < conversation.rows.size(); ++i) {
        const DatasetRow& row = conversation.rows[i];
        const DatasetRow& next = conversation.rows[i + 1];
        if (!row.is_request() || next.is_request()) continue;
        const auto calls = next.fields.find("tool_calls");
        out.push_back({conversation.id, row.turn, next.turn, calls == next.fields.end() ? Json() : *calls});
    }
}

Json score_run(std::span<const ExpectedTurn> expected, std::span<const ObservedTurn> observed) {
    std::map<ExpectedKey, const ExpectedTurn*> truths;
    for (const ExpectedTurn& turn : expected) truths[{turn.conversation, turn.client_turn}] = &turn;

    std::map<ExpectedKey, const ExpectedTurn*> scorable;
    Json excluded = Json::array();
    for (const auto& [key, truth] : truths) {
        if (!bash_actions(truth->tool_calls).empty()) {
            scorable.emplace(key, truth);
            continue;
        }
        excluded.push_back({{"conversation_id", key.first},
                            {"turn", truth->assistant_turn},
                            {"domain", "coding"},
                            {"exclude_reason", "no ground truth"}});
    }

    std::map<TurnKey, std::optional<Json>> issued;
    for (const ObservedTurn& turn : observed) {
        const Repeat repeat = split_repeat(turn.conversation);
        if (!truths.contains({repeat.conversation, turn.client_turn})) continue;
        std::optional<Json>& reply = issued[{repeat.conversation, repeat.repeat, turn.client_turn}];
        if (turn.tool_calls) reply = turn.tool_calls;
    }

    Totals totals;
    Json per_turn = Json::array();
    for (const auto& [key, reply] : issued) {
        const auto truth = scorable.find({std::get<0>(key), std::get<2>(key)});
        if (truth != scorable.end()) per_turn.push_back(score_turn(key, *truth->second, reply, totals));
    }

    const Json score = totals.scored == 0 ? Json() : Json(round_decimal(totals.score / static_cast<double>(totals.scored), 4));
    Json result{{"score", score}};
    result["turns"] = {{"issued", issued.size()},
                       {"expected", totals.scored},
                       {"observed", totals.scored - totals.missing},
                       {"missing", totals.missing},
                       {"scored", totals.scored}};
    result["domains"] = Json::object();
    if (totals.scored > 0) result["domains"]["coding"] = {{"score", score}, {"scored", totals.scored}};
    result["per_turn"] = std::move(per_turn);
    if (!excluded.empty()) result["excluded_turns"] = std::move(excluded);
    return result;
}

}  // namespace espalier::bench
