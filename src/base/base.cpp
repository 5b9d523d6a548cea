#include <cstdio>
#include <cstdlib>

#include "base/check.h"
#include "base/result.h"

namespace espalier {

void check_failed(const char* file, int line, const char* condition, const char* why) {
    std::fprintf(stderr, "%s:%d: CHECK failed: %s: %s\n", file, line, condition, why);
    std::fflush(stderr);
    std::abort();
}

std::string_view to_string(ErrorCode code) {
    switch (code) {
        case ErrorCode::invalid_input: return "invalid_input";
        case ErrorCode::corrupt_data: return "corrupt_data";
        case ErrorCode::unsupported: return "unsupported";
        case ErrorCode::exhausted: return "exhausted";
        case ErrorCode::device: return "device";
        case ErrorCode::cancelled: return "cancelled";
        case ErrorCode::internal: return "internal";
    }
    return "internal";
}

}  // namespace espalier
