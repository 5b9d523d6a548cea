// `espalier doctor`: what this machine offers, what holds it back, and what to change.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace espalier::probe {

struct Finding {
    enum class State {
        good,
        unknown,     // cannot be seen from here
        improvable,  // works, could be better: advice says how
        bad,         // will not work well
    };
    std::string name;  // "huge pages"
    State state = State::good;
    std::string value;   // what was found
    std::string advice;  // what to do, empty for good
};
std::string_view to_string(Finding::State state);

struct DoctorOptions {
    std::string isa;        // forced tier, empty = the best
    int32_t n_threads = 0;  // 0 = every CPU this process may use
    int32_t samples = 5;    // of each peak
    std::string root;       // before /proc and /sys; tests give a made-up tree
};

struct DoctorReport {
    std::string cpu;
    std::string tier;
    int32_t n_threads = 0;
    double read_gb_s = 0;
    double float_gmac_s = 0;
    double int8_gmac_s = 0;
    std::vector<Finding> findings;

    bool is_well() const;  // nothing is bad
    Json to_json() const;
    std::string to_text() const;
};

// What the files of a Linux system say, without measuring. A file that is missing makes a finding unknown.
std::vector<Finding> examine_system(const std::string& root);

// Measures for about a second. Errors: those of choosing a tier; exhausted.
Result<DoctorReport> run_doctor(const DoctorOptions& options);

}  // namespace espalier::probe
