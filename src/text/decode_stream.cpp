#include "text/tokenizer.h"
#include "text/tokenizer_utf8.h"

namespace espalier::text {
namespace {

// The first two bytes of a UTF-8 encoded surrogate. They are already broken, but the reference (Python's incremental
// decoder) keeps them until the third byte is known; the golden pieces show it.
bool is_surrogate_head(std::string_view bytes) {
    return bytes.size() == 2 && bytes[0] == '\xED' && static_cast<unsigned char>(bytes[1]) >= 0xA0 &&
           static_cast<unsigned char>(bytes[1]) <= 0xBF;
}

}  // namespace

std::string DecodeStream::push(TokenId id) {
    if (skip_ == SkipSpecial::yes && tokenizer_->is_special(id)) return {};
    pending_ += tokenizer_->token_bytes(id);
    std::string released;
    std::string_view rest = pending_;
    while (!rest.empty() && !is_surrogate_head(rest)) {
        const Utf8Unit unit = next_utf8(rest);
        if (unit.kind == Utf8Kind::unfinished) break;
        released += unit.kind == Utf8Kind::complete ? rest.substr(0, unit.n_bytes) : kReplacementUtf8;
        rest.remove_prefix(unit.n_bytes);
    }
    pending_.erase(0, pending_.size() - rest.size());
    return released;
}

std::string DecodeStream::flush() {
    std::string released = replace_invalid_utf8(pending_);
    pending_.clear();
    return released;
}

}  // namespace espalier::text
