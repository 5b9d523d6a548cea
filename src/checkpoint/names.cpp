#include "checkpoint/names.h"

#include <fmt/format.h>

#include <algorithm>

namespace espalier::checkpoint {
namespace {

constexpr size_t kPrintableBytesMax = 160;
constexpr size_t kItemsListedMax = 8;

std::string escape(std::string_view text) {
    std::string out;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 0x20 && byte < 0x7f) out += c;
        else out += fmt::format("\\x{:02x}", byte);
    }
    return out;
}

}  // namespace

std::string_view normalise_name(std::string_view name) {
    for (;;) {
        if (name.starts_with("model.")) name.remove_prefix(6);
        else if (name.starts_with("language_model.")) name.remove_prefix(15);
        else return name;
    }
}

bool is_visual(std::string_view normalised) {
    return normalised.starts_with("visual.") || normalised.starts_with("vision_tower.") ||
           normalised.starts_with("vision_model.");
}

bool is_spare_mtp(std::string_view normalised) {
    return normalised.starts_with("mtp.lm_head.") || normalised.starts_with("mtp.embed_tokens.");
}

std::string printable(std::string_view name) {
    if (name.size() <= kPrintableBytesMax) return escape(name);
    const size_t half = kPrintableBytesMax / 2;
    return fmt::format("{}...({} bytes)...{}", escape(name.substr(0, half)), name.size(),
                       escape(name.substr(name.size() - half)));
}

std::string first_few(std::span<const std::string> items) {
    const size_t n = std::min(items.size(), kItemsListedMax);
    const std::string rest = n < items.size() ? fmt::format(" and {} more", items.size() - n) : "";
    return fmt::format("{}{}", fmt::join(items.first(n), ", "), rest);
}

std::string shape_text(std::span<const int64_t> shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
}

NamePattern NamePattern::glob(std::string_view text) {
    NamePattern pattern;
    pattern.add_alternative(text);
    if (const auto bare = normalise_name(text); bare != text) pattern.add_alternative(bare);
    return pattern;
}

NamePattern NamePattern::dotted_part(std::string_view text) {
    NamePattern pattern;
    for (const auto spelling : {text, normalise_name(text)}) {
        pattern.add_alternative(spelling);
        pattern.add_alternative(fmt::format("{}.*", spelling));
        pattern.add_alternative(fmt::format("*.{}", spelling));
    }
    return pattern;
}

void NamePattern::add_alternative(std::string_view glob_text) {
    std::vector<Token> tokens;
    for (const char c : glob_text) {
        if (c == '*') tokens.push_back({Kind::any_run, 0});
        else if (c == '?') tokens.push_back({Kind::any_one, 0});
        else tokens.push_back({Kind::literal, c});
    }
    alternatives_.push_back(std::move(tokens));
}

std::optional<NamePattern> NamePattern::compressed_tensors(std::string_view text) {
    NamePattern pattern;
    if (!text.starts_with("re:")) {
        for (const auto spelling : {text, normalise_name(text)}) {
            std::vector<Token> tokens;
            for (const char c : spelling) tokens.push_back({Kind::literal, c});
            pattern.alternatives_.push_back(std::move(tokens));
        }
        return pattern;
    }
    text.remove_prefix(3);
    if (text.starts_with('^')) text.remove_prefix(1);
    std::vector<Token> tokens;
    bool is_open_ended = true;  // re.match does not anchor the end
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        const char next = i + 1 < text.size() ? text[i + 1] : '\0';
        if (c == '$' && i + 1 == text.size()) {
            is_open_ended = false;
        } else if (c == '\\' && (next == '.' || next == '-' || next == '_')) {
            tokens.push_back({Kind::literal, next});
            ++i;
        } else if (c == '.') {
            if (next != '*') tokens.push_back({Kind::any_one, 0});
            if (next == '*' || next == '+') {
                tokens.push_back({Kind::any_run, 0});
                ++i;
            }
        } else if (std::string_view("\\^$*+?{}[]()|").find(c) != std::string_view::npos) {
            return std::nullopt;
        } else if (next == '*' || next == '+' || next == '?' || next == '{') {
            return std::nullopt;
        } else {
            tokens.push_back({Kind::literal, c});
        }
    }
    if (is_open_ended) tokens.push_back({Kind::any_run, 0});
    pattern.alternatives_.push_back(std::move(tokens));
    return pattern;
}

bool NamePattern::matches(std::string_view file_name, std::string_view normalised) const {
    for (const auto& tokens : alternatives_) {
        if (match_tokens(tokens, file_name) || match_tokens(tokens, normalised)) return true;
    }
    return false;
}

// Greedy wildcard match: on a mismatch only the last run needs to grow, so the work is at most name x pattern.
bool NamePattern::match_tokens(std::span<const Token> tokens, std::string_view name) {
    size_t t = 0;
    size_t i = 0;
    std::optional<size_t> run;
    size_t run_end = 0;
    while (i < name.size()) {
        if (t < tokens.size() && tokens[t].kind == Kind::any_run) {
            run = t++;
            run_end = i;
        } else if (t < tokens.size() && (tokens[t].kind == Kind::any_one || tokens[t].c == name[i])) {
            ++t;
            ++i;
        } else if (run) {
            t = *run + 1;
            i = ++run_end;
        } else {
            return false;
        }
    }
    while (t < tokens.size() && tokens[t].kind == Kind::any_run) ++t;
    return t == tokens.size();
}

}  // namespace espalier::checkpoint
