// How likely a proposed token is the one the model will choose, from what its sources say: learned from every verified node,
// whether or not it was worth a place in the tree.
//
// Two stages. Each source's own evidence is sorted into cells (for a suffix match: how long it is, how large its share of the
// matches, how many agree), and a cell's rate is its hits over trials. Then who agrees with whom: the best single rate, the set
// of sources that proposed the token, and whether another source proposed something else, give the cell of the final rate. Errors
// of sources are correlated, so products of (1 - p) would promise too much.
#pragma once

#include <cstdint>

#include "decode/draft_tree.h"
#include "decode/mtp_drafter.h"
#include "decode/rate_table.h"
#include "decode/suffix_index.h"
#include "decode/tool_text.h"

namespace espalier::decode {

// What one source knows about a token.
struct Evidence {
    uint16_t cell = 0;  // of its source's table
    float rate = 0;
};

class DraftOdds {
public:
    DraftOdds();

    Evidence of_suffix(const SuffixIndex::Candidate& candidate) const;
    Evidence of_template(ToolText::Place place, int32_t n_candidates) const;
    Evidence of_mtp(const MtpCandidate& candidate) const;

    // kinds: the sources of the token; spoken: the sources that proposed anything at this node. best: the highest single rate.
    Evidence of_all(uint8_t kinds, uint8_t spoken, float best) const;

    // How often the head's first candidate is right after this many draft steps.
    float of_mtp_top(int32_t depth) const;
    void learn_mtp_top(int32_t depth, bool is_hit);

    void learn(DraftKind kind, uint16_t cell, bool is_hit);
    void learn_all(uint16_t cell, bool is_hit) { all_.update(cell, is_hit); }

private:
    RateTable suffix_;
    RateTable template_;
    RateTable mtp_;
    RateTable mtp_top_;
    RateTable all_;
};

}  // namespace espalier::decode
