// `espalier bench model`: prefill, decode and verify speed of one model in process, beside the machine's own limits measured in
// the same run. Repetitions of all tests are interleaved, so that a drifting machine moves them together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "engine/load.h"

namespace espalier::probe {

struct BenchModelOptions {
    engine::ModelOptions model;
    std::vector<int32_t> prompts = {512};  // -p: tokens of a prefill test
    std::vector<int32_t> replies = {64};   // -n: tokens of a decode test
    std::vector<int32_t> depths = {0};     // -d: tokens already in the sequence
    std::vector<int32_t> verify = {};      // -m: rows of a verify test (a chain of drafts, nothing accepted but the root)
    int32_t repetitions = 5;
    bool has_profile = false;  // --profile: where the time of each test goes, from further runs
};

struct Spread {
    double median = 0;
    double min = 0;
    double max = 0;
};

// The time of one kind of work (model/profile.h) in one pass of a test.
struct BenchModelWork {
    std::string work;
    double ms = 0;
    double share = 0;       // of the pass
    double idle_share = 0;  // of all threads' time meanwhile
    double gb_s = 0;        // matrices: packed bytes per second
};

struct BenchModelTest {
    std::string test;  // "pp512", "tg64", "verify4"
    int32_t depth = 0;
    Spread tokens_per_s;
    Spread ms;
    double share_of_bandwidth = 0;  // weight and KV bytes read per second / read bandwidth of this run
    double share_of_peak = 0;       // multiply-adds per second / the peak of the unit that the mode uses
    std::vector<BenchModelWork> profile;
    double matrices_share_of_bandwidth = 0;  // with a profile: of the matrices alone
    double matrices_share_of_peak = 0;
};

struct BenchModelReport {
    std::string cpu;
    std::string tier;
    std::string acts;
    int32_t n_threads = 0;
    double read_gb_s = 0;
    double float_gmac_s = 0;
    double int8_gmac_s = 0;
    double bf16_gmac_s = 0;  // 0 = this tier has no such unit
    std::vector<BenchModelTest> tests;

    Json to_json() const;
    std::string to_table() const;
};

// Errors: of loading; invalid_input for options that make no sense.
Result<BenchModelReport> bench_model(const BenchModelOptions& options);

}  // namespace espalier::probe
