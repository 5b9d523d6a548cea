// Cuts text into the pieces that byte-pair encoding works on, by the pattern of a tokenizer.json ("Split", "Isolated"): every
// match is a piece, and so is the text between two matches. An empty match only cuts.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace espalier::text {

// The pattern of a ByteLevel pre-tokenizer with use_regex (GPT-2's).
extern const std::string_view kByteLevelPattern;

// Match state of one thread; create one per call of encode and use it for all splitters.
class SplitScratch {
public:
    SplitScratch();
    ~SplitScratch();
    SplitScratch(const SplitScratch&) = delete;
    SplitScratch& operator=(const SplitScratch&) = delete;

private:
    friend class Splitter;
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// A compiled pattern; immutable, shared between threads.
class Splitter {
public:
    // Errors: unsupported (a construct we do not translate), corrupt_data (not a regular expression), with the reason.
    static Result<Splitter> compile(std::string_view pattern);

    Splitter(Splitter&&) noexcept;
    Splitter& operator=(Splitter&&) noexcept;
    ~Splitter();

    // The end of the piece that starts at `from` (from < text.size(), on a code point boundary; text is valid UTF-8). A pattern
    // that exceeds the match limits (it backtracks without end) gives the rest of the text as one piece.
    size_t piece_end(std::string_view text, size_t from, SplitScratch& scratch) const;

private:
    struct Impl;
    explicit Splitter(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace espalier::text
