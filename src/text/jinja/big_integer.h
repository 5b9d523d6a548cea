// Integers that do not fit int64: school arithmetic on groups of nine decimal digits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/jinja/object.h"

namespace espalier::text::jinja {

// Longer integers are refused, as Python refuses to print them.
inline constexpr size_t kIntegerDigitsMax = 4300;

// Decimal spelling (with '-') to a value: int64 where it fits, else BigInt. Leading zeros are dropped.
Val integer_from_digits(std::string_view digits);
std::string integer_digits(const Val& integer);  // of an int, bool or BigInt
bool is_integer(const Val& value);               // int, bool or BigInt

// -1, 0, 1.
int compare_integers(const Val& a, const Val& b);
Val add_integers(const Val& a, const Val& b);
Val negate_integer(const Val& a);
Val multiply_integers(const Val& a, const Val& b);
// Python's a // b and a % b: rounded down, the rest has the divisor's sign. b must not be zero.
struct Division {
    Val quotient;
    Val rest;
};
Division divide_integers(const Val& a, const Val& b);

}  // namespace espalier::text::jinja
