// Finds the first stop string in a growing reply, whatever the cuts between pieces are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::decode {

class StopMatcher {
public:
    // Empty strings never match.
    explicit StopMatcher(std::vector<std::string> stops);

    bool is_idle() const { return stops_.empty(); }
    // Appends a piece. Returns the byte offset in the whole text at which the earliest match begins (among matches that end in
    // this piece, the one that begins first), or -1.
    int64_t push(std::string_view piece);

private:
    std::vector<std::string> stops_;
    size_t longest_ = 0;
    std::string tail_;        // the last longest_ - 1 bytes
    int64_t tail_begin_ = 0;  // offset of tail_ in the text
};

}  // namespace espalier::decode
