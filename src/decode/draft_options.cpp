#include "decode/draft_options.h"

#include <fmt/format.h>

#include <charconv>

namespace espalier::decode {
namespace {

constexpr std::string_view kWords = "auto, off, or a comma list of mtp[:steps=N,topk=N,nodes=N], suffix, template, prefill";

Error bad_word(std::string_view word, std::string_view text) {
    return invalid_input(fmt::format("--draft: \"{}\" in \"{}\" is not known; expected {}", word, text, kWords));
}

Status set_number(DraftOptions& options, std::string_view item, std::string_view text) {
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) return bad_word(item, text);
    const std::string_view key = item.substr(0, equals);
    const std::string_view digits = item.substr(equals + 1);
    int32_t* const target = key == "steps"   ? &options.mtp_steps
                            : key == "topk"  ? &options.mtp_topk
                            : key == "nodes" ? &options.nodes_max
                                             : nullptr;
    if (target == nullptr) return bad_word(item, text);
    const int32_t most = key == "steps" ? kMtpStepsMax : key == "topk" ? kMtpTopkMax : kDraftNodesMax;
    int32_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 1 || value > most)
        return invalid_input(fmt::format("--draft: {} is \"{}\" in \"{}\", expected 1 to {}", key, digits, text, most));
    *target = value;
    return {};
}

}  // namespace

Result<DraftOptions> DraftOptions::parse(std::string_view text) {
    DraftOptions options;
    if (text == "off") return options;
    if (text == "auto") {
        options.has_mtp = options.has_suffix = options.has_template = options.has_prefill = true;
        return options;
    }
    bool is_in_mtp = false;
    bool has_nodes = false;
    for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find(',', begin), text.size());
        std::string_view word = text.substr(begin, end - begin);
        begin = end + 1;
        if (word.starts_with("mtp:")) {
            options.has_mtp = is_in_mtp = true;
            word.remove_prefix(4);
        }
        if (is_in_mtp && word.find('=') != std::string_view::npos) {
            TRY(set_number(options, word, text));
            has_nodes = has_nodes || word.starts_with("nodes");
            options.is_adaptive = false;
            continue;
        }
        is_in_mtp = word == "mtp";
        bool* const source = word == "mtp"        ? &options.has_mtp
                             : word == "suffix"   ? &options.has_suffix
                             : word == "template" ? &options.has_template
                             : word == "prefill"  ? &options.has_prefill
                                                  : nullptr;
        if (source == nullptr) return bad_word(word, text);
        *source = true;
    }
    if (options.is_off())
        return invalid_input(fmt::format("--draft: \"{}\" names no source of drafts; expected {}", text, kWords));
    // A tree of a fixed size without a number: a chain of all steps, or the first of every rank.
    if (!options.is_adaptive && !has_nodes) options.nodes_max = std::min(kDraftNodesMax, options.mtp_steps * options.mtp_topk);
    return options;
}

std::string DraftOptions::text() const {
    if (is_off()) return "off";
    if (has_mtp && has_suffix && has_template && has_prefill && is_adaptive) return "auto";
    std::string out;
    const auto add = [&out](bool is_there, const std::string& word) {
        if (is_there) out += (out.empty() ? "" : ",") + word;
    };
    add(has_mtp, is_adaptive ? "mtp" : fmt::format("mtp:steps={},topk={},nodes={}", mtp_steps, mtp_topk, nodes_max));
    add(has_suffix, "suffix");
    add(has_template, "template");
    add(has_prefill, "prefill");
    return out;
}

}  // namespace espalier::decode
