// Tensor and module names: normalising the prefixes of different exports, matching the patterns of quantisation metadata,
// and printing names from untrusted files.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::checkpoint {

// Strips every leading "model." and "language_model.": exports differ in the nesting, and the nesting does not follow from the
// config's layout. "model.language_model.layers.0.mlp.up_proj.weight" gives "layers.0.mlp.up_proj.weight".
std::string_view normalise_name(std::string_view name);

// Whether a normalised name belongs to the vision tower, which text inference skips.
bool is_visual(std::string_view normalised);

// Whether a normalised name belongs to a copy of the trunk's head or embedding for the MTP head, which derived checkpoints may
// have. The trunk's own are always valid there.
bool is_spare_mtp(std::string_view normalised);

// A name as it may be shown on one line: control bytes and bytes outside ASCII escaped, long ones cut in the middle.
std::string printable(std::string_view name);

// The first eight of a list: "'a' F32 [3], 'b' F32 [] and 12 more".
std::string first_few(std::span<const std::string> items);

// "[256, 128]"; a scalar gives "[]".
std::string shape_text(std::span<const int64_t> shape);

// A pattern over module names. Three dialects exist in quantisation metadata; all compile to literals, "any one character" and
// "any run of characters", and match in time O(name x pattern), whatever the file says.
class NamePattern {
public:
    // ModelOpt's exclude lists: fnmatch globs with '*' and '?'.
    static NamePattern glob(std::string_view text);
    // compressed-tensors: an exact module name, or "re:" and a Python regular expression matched from the start of the name.
    // Empty when the expression uses more than literals, '.', ".*", ".+", an escaped character, '^' and '$': callers then know
    // nothing.
    static std::optional<NamePattern> compressed_tensors(std::string_view text);
    // Lists of the "fp8" method: a module name, its dotted prefix or its dotted suffix.
    static NamePattern dotted_part(std::string_view text);

    // True when either spelling of the module matches: as in the file, or normalised.
    bool matches(std::string_view file_name, std::string_view normalised) const;

private:
    enum class Kind : uint8_t { literal, any_one, any_run };
    struct Token {
        Kind kind;
        char c;
    };
    static bool match_tokens(std::span<const Token> tokens, std::string_view name);
    void add_alternative(std::string_view glob_text);

    std::vector<std::vector<Token>> alternatives_;
};

}  // namespace espalier::checkpoint
