#include "text/output_parser_symbols.h"

#include "text/tokenizer_utf8.h"

namespace espalier::text {

size_t skip_space(std::string_view text, size_t pos) {
    while (pos < text.size() && is_space(text[pos])) ++pos;
    return pos;
}

std::string_view trim_space(std::string_view text) {
    text.remove_prefix(skip_space(text, 0));
    while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
    return text;
}

std::string_view marker_text(const ToolFormat& format, char symbol) {
    switch (symbol) {
        case kCallOpen: return format.call_open;
        case kCallClose: return format.call_close;
        case kThinkOpen: return format.think_open;
        default: return format.think_close;
    }
}

void SymbolGate::push(std::string_view text, bool is_marker, std::string& symbols) {
    if (is_marker && !text.empty()) {
        for (const char symbol : {kCallOpen, kCallClose, kThinkOpen, kThinkClose}) {
            if (text != marker_text(*format_, symbol)) continue;
            flush(symbols);
            symbols += symbol;
            return;
        }
    }
    std::string joined;
    if (!tail_.empty()) {
        joined = tail_ + std::string(text);
        tail_.clear();
        text = joined;
    }
    while (!text.empty()) {
        const size_t n_ascii = ascii_prefix(text);
        symbols += text.substr(0, n_ascii);
        text.remove_prefix(n_ascii);
        if (text.empty()) break;
        const Utf8Unit unit = next_utf8(text);
        if (unit.kind == Utf8Kind::unfinished) {
            tail_ = text;
            break;
        }
        symbols += unit.kind == Utf8Kind::complete ? text.substr(0, unit.n_bytes) : kReplacementUtf8;
        text.remove_prefix(unit.n_bytes);
    }
}

void SymbolGate::flush(std::string& symbols) {
    if (!tail_.empty()) symbols += kReplacementUtf8;
    tail_.clear();
}

}  // namespace espalier::text
