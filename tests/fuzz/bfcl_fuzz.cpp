// fuzz-links: espalier_bench
// A model's answer to a function-calling sample: text up to the first zero byte, then the structured calls. The answer is checked
// against one sample per language.
#include <cstdint>
#include <string>
#include <string_view>

#include "bench/bfcl/verdict.h"

namespace {

using espalier::bench::BfclTruth;

BfclTruth truth(const char* subset, const char* functions, const char* answer) {
    return {subset, *espalier::text::parse_json_value(functions, "functions"),
            *espalier::text::parse_json_value(answer, "answer")};
}

const BfclTruth& sample(size_t index) {
    static const BfclTruth samples[] = {
        truth(
            "parallel",
            R"([{"name":"a.f","parameters":{"properties":{"x":{"type":"float"},"l":{"type":"array","items":{"type":"dict"}},"d":{"type":"dict"},"s":{"type":"string"}},"required":["x"]}}])",
            R"([{"a.f":{"x":[1.0],"l":[[{"k":[1]}],""],"d":[{"k":["v",""]},""],"s":["a b",""]}}])"),
        truth(
            "simple_java",
            R"([{"name":"f","parameters":{"properties":{"m":{"type":"HashMap"},"l":{"type":"ArrayList","items":{"type":"long"}},"a":{"type":"Array","items":{"type":"String"}}},"required":[]}}])",
            R"([{"f":{"m":[{"k":["v"]},""],"l":[[1],""],"a":[["x"],""]}}])"),
        truth(
            "simple_javascript",
            R"([{"name":"f","parameters":{"properties":{"d":{"type":"dict"},"a":{"type":"array","items":{"type":"String"}},"b":{"type":"Bigint"}},"required":[]}}])",
            R"([{"f":{"d":[{"k":["v"]},""],"a":[["x"],""],"b":[1,""]}}])"),
    };
    return samples[index % 3];
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    const size_t zero = bytes.find('\0');
    espalier::bench::BfclReply reply{std::string(bytes.substr(0, zero)), ""};
    if (zero != std::string_view::npos) reply.tool_calls = bytes.substr(zero + 1);
    for (size_t i = 0; i < 3; ++i) (void)espalier::bench::bfcl_verdict(sample(i), reply);
    return 0;
}
