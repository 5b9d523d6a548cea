// fuzz-links: espalier_quant
// A file of calibration texts on arbitrary bytes: an error of one line, or token ids within all limits.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "quant/byte_tokenizer.h"
#include "quant/token_sets.h"

using namespace espalier;
using namespace espalier::quant;

namespace {

constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.role }}{{ m.content }}{{ m.reasoning_content }}{% for c in m.tool_calls %}{{ c.function.name }}"
    "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}{{ tools | length if tools else '' }}";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const auto tokenizer = byte_tokenizer();
    static const auto chat_template = *text::ChatTemplate::parse(kTemplate);
    constexpr TextLimits kLimits = {300, 100, 256};
    const std::string_view file(reinterpret_cast<const char*>(data), size);
    const auto set = read_token_set(file, "fuzz", {tokenizer.get(), chat_template.get()}, kLimits);
    if (!set) {
        CHECK(!set.error().message.empty(), "an error says why");
        return 0;
    }
    CHECK(set->n_calibration > 0 && set->n_calibration <= set->sequences.size(), "there is something to calibrate on");
    CHECK(set->row_begin(set->n_calibration) <= kLimits.calibration_tokens, "calibration within its limit");
    CHECK(set->n_rows() <= kLimits.calibration_tokens + kLimits.heldout_tokens, "held-out texts within their limit");
    for (const auto& ids : set->sequences) {
        CHECK(ids.size() >= 2, "a sequence predicts something");
        for (const TokenId id : ids) CHECK(id >= 0 && id < kLimits.vocab, "ids are in the vocabulary");
    }
    return 0;
}
