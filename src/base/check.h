// CHECK: our own mistakes. Always on; prints file, line, condition and reason, then aborts.
// DCHECK: the same for inner loops, compiled out when NDEBUG is defined.
#pragma once

namespace espalier {

// Prints "file:line: CHECK failed: condition: why" to stderr and aborts. Never returns.
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const char* why);

}  // namespace espalier

#define CHECK(condition, why)                                                \
    do {                                                                     \
        if (!(condition)) [[unlikely]] {                                     \
            ::espalier::check_failed(__FILE__, __LINE__, #condition, (why)); \
        }                                                                    \
    } while (false)

#ifdef NDEBUG
#define DCHECK(condition, why) \
    do {                       \
    } while (false)
#else
#define DCHECK(condition, why) CHECK(condition, why)
#endif
