// The words of --draft: auto, off, or a comma list of mtp[:steps=N,topk=N,nodes=N], suffix, template, prefill.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace espalier::decode {

struct DraftOptions {
    bool has_mtp = false;
    bool has_suffix = false;
    bool has_template = false;
    bool has_prefill = false;  // drafts ride on the last chunk of the prompt

    // The size of the tree follows from what passes cost and what drafts are worth. Else it is as given: all steps of the MTP
    // head run and all nodes are used, however unlikely.
    bool is_adaptive = true;
    int32_t mtp_steps = 8;
    int32_t mtp_topk = 2;
    int32_t nodes_max = 64;

    bool is_off() const { return !has_mtp && !has_suffix && !has_template; }

    // Errors: invalid_input naming the word and what is possible.
    static Result<DraftOptions> parse(std::string_view text);
    // The same words again, for /props.
    std::string text() const;
};

inline constexpr int32_t kDraftNodesMax = 64;
inline constexpr int32_t kMtpStepsMax = 32;
inline constexpr int32_t kMtpTopkMax = 8;

}  // namespace espalier::decode
