// fuzz-links: espalier_bench
// A dataset file: parsed, and every request of it built.
#include <cstdint>
#include <string_view>

#include "bench/dataset.h"
#include "bench/scores.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto dataset = espalier::bench::parse_dataset({reinterpret_cast<const char*>(data), size}, "dataset");
    if (!dataset) return 0;
    for (const espalier::bench::Conversation& conversation : dataset->conversations) {
        espalier::bench::History history(conversation);
        for (const espalier::bench::DatasetRow& row : conversation.rows) history.append(row);
        std::vector<espalier::bench::ExpectedTurn> expected;
        append_expected(conversation, expected);
        const espalier::Json scores = espalier::bench::score_run(expected, {});
    }
    return 0;
}
