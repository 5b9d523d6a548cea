// eval draft-replay: how many forward passes the recorded replies of a workload would take with the drafts of text alone (suffix
// index, tool calls, prompt pass). No model runs: the recorded reply is what the model is taken to choose.
#pragma once

#include <memory>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "bench/dataset.h"
#include "decode/draft_options.h"
#include "decode/draft_tree.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace espalier::probe {

struct DraftReplayOptions {
    decode::DraftOptions draft;
    int32_t nodes_max = 16;  // of a tree
    std::shared_ptr<const text::Tokenizer> tokenizer;
    std::shared_ptr<const text::ChatTemplate> chat_template;
};

// {"suffix": {"drafted", "accepted"}, ...} of the sources that proposed anything.
Json draft_sources_json(const decode::DraftCounts& counts);

// {"turns", "reply_tokens", "plain_rounds", "rounds" (both per turn), "drafted", "accepted", ...}. Errors: invalid_input naming
// the conversation whose template refused; unsupported for mtp, which needs a model.
Result<Json> replay_drafts(const bench::Dataset& dataset, const DraftReplayOptions& options);

}  // namespace espalier::probe
