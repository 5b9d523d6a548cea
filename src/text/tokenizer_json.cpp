#include "text/tokenizer_json.h"

#include <fmt/format.h>

#include <utility>

namespace espalier::text {
namespace {

using Document = nlohmann::json;

constexpr size_t kDepthMax = 32;
constexpr size_t kOtherValuesMax = 2'000'000;  // outside vocab and merges; added tokens have seven values each

// Event handler for nlohmann's parser: returning false stops it, with the reason in error_.
class Splitting final : public nlohmann::json_sax<Document> {
public:
    explicit Splitting(TokenizerJson& out) : out_(out) {}

    const std::string& error() const { return error_; }

    bool null() override { return scalar(nullptr); }
    bool boolean(bool value) override { return scalar(value); }
    bool number_float(double value, const std::string&) override { return scalar(value); }
    bool binary(Document::binary_t&) override { return fail("binary data"); }

    bool number_integer(int64_t value) override { return part_ == Part::vocab ? vocab_id(value) : scalar(value); }

    bool number_unsigned(uint64_t value) override {
        if (part_ != Part::vocab) return scalar(value);
        return vocab_id(value > INT64_MAX ? INT64_MAX : static_cast<int64_t>(value));
    }

    bool string(std::string& value) override {
        if (part_ == Part::merges) return merge_line(value);
        if (part_ == Part::merge_pair) return merge_part(value);
        return scalar(std::move(value));
    }

    bool key(std::string& name) override {
        if (part_ == Part::vocab) {
            out_.vocab_names.append(name);
            return true;
        }
        if (open_.size() == 1) in_model_ = name == "model";
        key_ = std::move(name);
        return true;
    }

    bool start_object(size_t) override {
        if (part_ == Part::rest && is_model_member("vocab")) {
            if (std::exchange(out_.has_vocab, true)) return fail("model.vocab: occurs twice");
            part_ = Part::vocab;
            return true;
        }
        return start(Document::object());
    }

    bool end_object() override {
        if (part_ == Part::vocab) part_ = Part::rest;
        else open_.pop_back();
        return true;
    }

    bool start_array(size_t) override {
        if (part_ == Part::merges) {
            part_ = Part::merge_pair;
            n_pair_parts_ = 0;
            return true;
        }
        if (part_ == Part::rest && is_model_member("merges")) {
            if (std::exchange(out_.has_merges, true)) return fail("model.merges: occurs twice");
            part_ = Part::merges;
            return true;
        }
        return start(Document::array());
    }

    bool end_array() override {
        if (part_ == Part::merge_pair) {
            if (n_pair_parts_ != 2) return fail("model.merges: a merge has {} parts instead of 2", n_pair_parts_);
            part_ = Part::merges;
        } else if (part_ == Part::merges) {
            part_ = Part::rest;
        } else {
            open_.pop_back();
        }
        return true;
    }

    bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
        return fail("not valid JSON at byte {}", position);
    }

private:
    enum class Part { rest, vocab, merges, merge_pair };

    template <class... Args>
    bool fail(fmt::format_string<Args...> format, Args&&... args) {
        if (error_.empty()) error_ = fmt::format(format, std::forward<Args>(args)...);
        return false;
    }

    bool is_model_member(std::string_view name) const {
        return open_.size() == 2 && in_model_ && open_.back()->is_object() && key_ == name;
    }

    bool vocab_id(int64_t id) {
        out_.vocab_ids.push_back(id);
        return true;
    }

    bool merge_part(std::string_view part) {
        if (++n_pair_parts_ > 2) return fail("model.merges: a merge has more than 2 parts");
        out_.merge_parts.append(part);
        return true;
    }

    // The older form: "left right"; a file may start with a "#version" line.
    bool merge_line(std::string_view line) {
        if (line.starts_with("#version")) return true;
        const size_t space = line.find(' ');
        if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
            return fail("model.merges: merge {} is not two tokens with one space between", out_.merge_parts.size() / 2);
        }
        out_.merge_parts.append(line.substr(0, space));
        out_.merge_parts.append(line.substr(space + 1));
        return true;
    }

    bool scalar(Document value) {
        if (part_ == Part::vocab) return fail("model.vocab: an id is not an integer");
        if (part_ != Part::rest) return fail("model.merges: a merge is neither a string nor a pair of strings");
        return place(std::move(value)) != nullptr;
    }

    bool start(Document container) {
        if (part_ != Part::rest) return scalar(std::move(container));
        if (open_.size() == kDepthMax) return fail("nests more than {} levels deep", kDepthMax);
        Document* placed = place(std::move(container));
        if (placed == nullptr) return false;
        open_.push_back(placed);
        return true;
    }

    // Puts a value where the parser stands. Pointers in open_ stay valid: only the innermost container grows.
    Document* place(Document value) {
        if (++n_values_ > kOtherValuesMax) {
            fail("more than {} values beside the vocabulary and merges", kOtherValuesMax);
            return nullptr;
        }
        if (open_.empty()) {
            out_.rest = std::move(value);
            return &out_.rest;
        }
        Document& parent = *open_.back();
        if (parent.is_array()) return &parent.emplace_back(std::move(value));
        return &(parent[key_] = std::move(value));
    }

    TokenizerJson& out_;
    std::string error_;
    std::vector<Document*> open_;
    std::string key_;
    Part part_ = Part::rest;
    bool in_model_ = false;
    int n_pair_parts_ = 0;
    size_t n_values_ = 0;
};

}  // namespace

Result<TokenizerJson> split_tokenizer_json(std::string_view text) {
    TokenizerJson out;
    Splitting splitting(out);
    const bool is_complete = Document::sax_parse(text.begin(), text.end(), &splitting);
    if (!is_complete) return corrupt_data(splitting.error().empty() ? "not valid JSON" : splitting.error());
    if (!out.rest.is_object()) return corrupt_data(fmt::format("a JSON object is expected, found {}", out.rest.type_name()));
    return out;
}

}  // namespace espalier::text
