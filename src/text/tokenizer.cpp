#include "text/tokenizer.h"

#include <fmt/format.h>

#include <filesystem>
#include <unordered_map>

#include "base/check.h"
#include "base/mapped_file.h"
#include "text/bpe.h"
#include "text/pretokenize.h"
#include "text/tokenizer_added.h"
#include "text/tokenizer_file.h"
#include "text/tokenizer_nfc.h"
#include "text/tokenizer_utf8.h"

namespace espalier::text {
namespace {

constexpr size_t kFileBytesMax = size_t{256} << 20;  // the real file has 10 MB

}  // namespace

struct Tokenizer::Impl {
    Bpe bpe;
    std::vector<Splitter> splitters;
    std::optional<Nfc> nfc;
    std::vector<AddedTokenRule> rules;  // added tokens, in file order; never resized after the finders point into it
    std::vector<AddedToken> added;      // the same, for callers
    std::vector<int32_t> rule_of_id;    // -1: not an added token
    std::unordered_map<std::string_view, TokenId> id_of_content;
    AddedTokenFinder raw_finder;         // looks at the text as given
    AddedTokenFinder normalised_finder;  // looks at normalised text

    explicit Impl(Bpe built) : bpe(std::move(built)) {}

    Status add_tokens(std::vector<AddedTokenRule> list);
    const AddedTokenRule* rule_of(TokenId id) const;
};

// One call of encode: walks down from raw text to pieces and collects ids.
class TokenizerEncoding {
public:
    TokenizerEncoding(const Tokenizer::Impl& impl, SpecialTokens special) : impl_(impl), special_(special) {}

    std::vector<TokenId> run(std::string_view text) {
        ids_.reserve(text.size() / 4);
        cut(impl_.raw_finder, text, [this](std::string_view raw) {
            const std::string_view normalised = impl_.nfc ? impl_.nfc->apply(raw, normalised_) : raw;
            cut(impl_.normalised_finder, normalised, [this](std::string_view plain) { split(plain, 0); });
        });
        return std::move(ids_);
    }

private:
    // Emits added tokens and hands the text between them to `plain`.
    template <class Plain>
    void cut(const AddedTokenFinder& finder, std::string_view text, Plain plain) {
        size_t done = 0;
        size_t from = 0;
        while (special_ != SpecialTokens::none && !finder.is_empty()) {
            const AddedTokenFinder::Match match = finder.find(text, from);
            if (match.rule == nullptr) break;
            from = match.end;
            if (special_ == SpecialTokens::non_control && match.rule->token.is_special) continue;
            const AddedSpan span = apply_flags(match, text, done);
            if (!span.is_taken) continue;
            if (span.begin > done) plain(text.substr(done, span.begin - done));
            ids_.push_back(match.rule->token.id);
            done = span.end;
        }
        if (done < text.size()) plain(text.substr(done));
    }

    void split(std::string_view text, size_t level) {
        if (level == impl_.splitters.size()) {
            impl_.bpe.encode(text, ids_);
            return;
        }
        for (size_t from = 0; from < text.size();) {
            const size_t end = impl_.splitters[level].piece_end(text, from, scratch_);
            split(text.substr(from, end - from), level + 1);
            from = end;
        }
    }

    const Tokenizer::Impl& impl_;
    SpecialTokens special_;
    SplitScratch scratch_;
    std::string normalised_;
    std::vector<TokenId> ids_;
};

Status Tokenizer::Impl::add_tokens(std::vector<AddedTokenRule> list) {
    rules = std::move(list);
    for (size_t i = 0; i < rules.size(); ++i) {
        const AddedToken& token = rules[i].token;
        const auto id = static_cast<size_t>(token.id);
        if (id >= rule_of_id.size()) rule_of_id.resize(id + 1, -1);
        if (rule_of_id[id] >= 0) return corrupt_data(fmt::format("added_tokens[{}]: id {} is used twice", i, token.id));
        if (!id_of_content.emplace(token.content, token.id).second) {
            return corrupt_data(fmt::format("added_tokens[{}]: '{}' occurs twice", i, token.content));
        }
        const TokenId in_vocabulary = bpe.id_of_name(token.content);
        const bool is_taken = in_vocabulary < 0 && !bpe.token_bytes(token.id).empty();
        if (is_taken || (in_vocabulary >= 0 && in_vocabulary != token.id)) {
            return corrupt_data(
                fmt::format("added_tokens[{}]: '{}' has id {}, model.vocab says otherwise", i, token.content, token.id));
        }
        rule_of_id[id] = static_cast<int32_t>(i);
        std::string normalised;
        if (rules[i].is_normalized) normalised_finder.add(rules[i], nfc ? nfc->apply(token.content, normalised) : token.content);
        else raw_finder.add(rules[i], token.content);
        added.push_back(token);
    }
    rule_of_id.resize(std::max(rule_of_id.size(), static_cast<size_t>(bpe.id_end())), -1);
    return {};
}

const AddedTokenRule* Tokenizer::Impl::rule_of(TokenId id) const {
    if (id < 0 || static_cast<size_t>(id) >= rule_of_id.size()) return nullptr;
    const int32_t index = rule_of_id[static_cast<size_t>(id)];
    return index < 0 ? nullptr : &rules[static_cast<size_t>(index)];
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::build(TokenizerFile file) {
    auto bpe = Bpe::build(file.bpe);
    if (!bpe) return Error{bpe.error().code, "model: " + bpe.error().message};
    auto impl = std::make_unique<Impl>(*std::move(bpe));
    if (file.normalizer == Normalizer::nfc) impl->nfc.emplace();
    for (const std::string& pattern : file.patterns) {
        auto splitter = Splitter::compile(pattern);
        if (!splitter) return Error{splitter.error().code, "pre_tokenizer pattern: " + splitter.error().message};
        impl->splitters.push_back(*std::move(splitter));
    }
    TRY(impl->add_tokens(std::move(file.added)));
    return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::parse(std::string_view tokenizer_json) {
    auto file = read_tokenizer_file(tokenizer_json);
    if (!file) return Error{file.error().code, "tokenizer.json: " + file.error().message};
    auto tokenizer = build(*std::move(file));
    if (!tokenizer) return Error{tokenizer.error().code, "tokenizer.json: " + tokenizer.error().message};
    return tokenizer;
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::load(const std::string& path) {
    std::error_code ignored;
    const std::string file = std::filesystem::is_directory(path, ignored) ? path + "/tokenizer.json" : path;
    TRY_ASSIGN(const std::string text, read_file(file, kFileBytesMax));
    auto tokenizer = parse(text);
    if (!tokenizer) return Error{tokenizer.error().code, file + ": " + tokenizer.error().message};
    return tokenizer;
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
    TokenizerEncoding encoding(*impl_, special);
    return is_valid_utf8(text) ? encoding.run(text) : encoding.run(replace_invalid_utf8(text));
}

std::string Tokenizer::decode(const std::vector<TokenId>& ids, SkipSpecial skip) const {
    std::string bytes;
    for (const TokenId id : ids) {
        if (skip == SkipSpecial::no || !is_special(id)) bytes += token_bytes(id);
    }
    return is_valid_utf8(bytes) ? bytes : replace_invalid_utf8(bytes);
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
    const AddedTokenRule* rule = impl_->rule_of(id);
    return rule != nullptr ? std::string_view(rule->token.content) : impl_->bpe.token_bytes(id);
}

int32_t Tokenizer::vocab_size() const {
    return static_cast<int32_t>(impl_->rule_of_id.size());
}

TokenId Tokenizer::added_token_id(std::string_view content) const {
    const auto found = impl_->id_of_content.find(content);
    return found == impl_->id_of_content.end() ? -1 : found->second;
}

const std::vector<AddedToken>& Tokenizer::added_tokens() const {
    return impl_->added;
}

bool Tokenizer::is_added(TokenId id) const {
    return impl_->rule_of(id) != nullptr;
}

bool Tokenizer::is_special(TokenId id) const {
    const AddedTokenRule* rule = impl_->rule_of(id);
    return rule != nullptr && rule->token.is_special;
}

}  // namespace espalier::text
