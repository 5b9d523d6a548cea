#include "text/jinja/big_integer.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/check.h"

namespace espalier::text::jinja {
namespace {

constexpr uint64_t kBase = 1'000'000'000;
constexpr size_t kBaseDigits = 9;

// Magnitude in base 10^9, least significant first, no leading zeros.
struct Big {
    bool is_negative = false;
    std::vector<uint64_t> limbs;
};

void trim(Big& big) {
    while (!big.limbs.empty() && big.limbs.back() == 0) big.limbs.pop_back();
    if (big.limbs.empty()) big.is_negative = false;
}

Big to_big(std::string_view digits) {
    Big big;
    if (!digits.empty() && digits[0] == '-') {
        big.is_negative = true;
        digits.remove_prefix(1);
    }
    while (!digits.empty()) {
        const size_t n = std::min(kBaseDigits, digits.size());
        uint64_t limb = 0;
        std::from_chars(digits.data() + digits.size() - n, digits.data() + digits.size(), limb);
        big.limbs.push_back(limb);
        digits.remove_suffix(n);
    }
    trim(big);
    return big;
}

Val to_val(const Big& big) {
    std::string digits(big.is_negative ? 1 : 0, '-');
    for (size_t i = big.limbs.size(); i-- > 0;) {
        const std::string limb = std::to_string(big.limbs[i]);
        if (i + 1 < big.limbs.size()) digits.append(kBaseDigits - limb.size(), '0');
        digits += limb;
    }
    return integer_from_digits(digits);
}

int compare_magnitudes(const Big& a, const Big& b) {
    if (a.limbs.size() != b.limbs.size()) return a.limbs.size() < b.limbs.size() ? -1 : 1;
    for (size_t i = a.limbs.size(); i-- > 0;) {
        if (a.limbs[i] != b.limbs[i]) return a.limbs[i] < b.limbs[i] ? -1 : 1;
    }
    return 0;
}

std::vector<uint64_t> add_magnitudes(const Big& a, const Big& b) {
    std::vector<uint64_t> sum;
    uint64_t carry = 0;
    for (size_t i = 0; i < std::max(a.limbs.size(), b.limbs.size()) || carry != 0; ++i) {
        carry += (i < a.limbs.size() ? a.limbs[i] : 0) + (i < b.limbs.size() ? b.limbs[i] : 0);
        sum.push_back(carry % kBase);
        carry /= kBase;
    }
    return sum;
}

// larger must not be smaller in magnitude.
std::vector<uint64_t> subtract_magnitudes(const Big& larger, const Big& smaller) {
    std::vector<uint64_t> difference;
    uint64_t borrow = 0;
    for (size_t i = 0; i < larger.limbs.size(); ++i) {
        const uint64_t take = borrow + (i < smaller.limbs.size() ? smaller.limbs[i] : 0);
        borrow = larger.limbs[i] < take ? 1 : 0;
        difference.push_back(larger.limbs[i] + borrow * kBase - take);
    }
    return difference;
}

std::vector<uint64_t> scale(const std::vector<uint64_t>& limbs, uint64_t factor) {
    std::vector<uint64_t> product;
    uint64_t carry = 0;
    for (size_t i = 0; i < limbs.size() || carry != 0; ++i) {
        carry += (i < limbs.size() ? limbs[i] : 0) * factor;
        product.push_back(carry % kBase);
        carry /= kBase;
    }
    return product;
}

// Magnitudes only: digit by digit from the top, each digit of the quotient by bisection.
Big divide_magnitudes(const Big& a, const Big& b, Big& rest) {
    Big quotient;
    quotient.limbs.assign(a.limbs.size(), 0);
    rest = {};
    for (size_t i = a.limbs.size(); i-- > 0;) {
        rest.limbs.insert(rest.limbs.begin(), a.limbs[i]);
        trim(rest);
        uint64_t low = 0;
        uint64_t high = kBase;
        while (high - low > 1) {
            const uint64_t middle = (low + high) / 2;
            Big product{false, scale(b.limbs, middle)};
            trim(product);
            if (compare_magnitudes(product, rest) <= 0) low = middle;
            else high = middle;
        }
        quotient.limbs[i] = low;
        Big product{false, scale(b.limbs, low)};
        trim(product);
        rest.limbs = subtract_magnitudes(rest, product);
        trim(rest);
    }
    trim(quotient);
    return quotient;
}

}  // namespace

Val integer_from_digits(std::string_view digits) {
    const bool is_negative = !digits.empty() && digits[0] == '-';
    if (is_negative || (!digits.empty() && digits[0] == '+')) digits.remove_prefix(1);
    const size_t first = std::min(digits.find_first_not_of('0'), digits.size());
    digits.remove_prefix(first);
    if (digits.empty()) return int64_t{0};
    std::string spelled(is_negative ? 1 : 0, '-');
    spelled += digits;
    int64_t value = 0;
    if (std::from_chars(spelled.data(), spelled.data() + spelled.size(), value).ec == std::errc()) return value;
    return Val(BigInt{std::move(spelled)});
}

std::string integer_digits(const Val& integer) {
    if (const bool* boolean = integer.as_bool()) return *boolean ? "1" : "0";
    if (const int64_t* value = integer.as_int()) return std::to_string(*value);
    CHECK(integer.as_big_int() != nullptr, "digits of something that is no integer");
    return integer.as_big_int()->digits;
}

bool is_integer(const Val& value) {
    return value.as_int() != nullptr || value.as_bool() != nullptr || value.as_big_int() != nullptr;
}

int compare_integers(const Val& a, const Val& b) {
    const Big x = to_big(integer_digits(a));
    const Big y = to_big(integer_digits(b));
    if (x.is_negative != y.is_negative) return x.is_negative ? -1 : 1;
    return x.is_negative ? compare_magnitudes(y, x) : compare_magnitudes(x, y);
}

Val add_integers(const Val& a, const Val& b) {
    const Big x = to_big(integer_digits(a));
    const Big y = to_big(integer_digits(b));
    Big sum;
    if (x.is_negative == y.is_negative) {
        sum = {x.is_negative, add_magnitudes(x, y)};
    } else if (compare_magnitudes(x, y) >= 0) {
        sum = {x.is_negative, subtract_magnitudes(x, y)};
    } else {
        sum = {y.is_negative, subtract_magnitudes(y, x)};
    }
    trim(sum);
    return to_val(sum);
}

Val negate_integer(const Val& a) {
    std::string digits = integer_digits(a);
    if (digits[0] == '-') digits.erase(0, 1);
    else digits.insert(digits.begin(), '-');
    return integer_from_digits(digits);
}

Val multiply_integers(const Val& a, const Val& b) {
    const Big x = to_big(integer_digits(a));
    const Big y = to_big(integer_digits(b));
    Big product{x.is_negative != y.is_negative, std::vector<uint64_t>(x.limbs.size() + y.limbs.size() + 1, 0)};
    for (size_t i = 0; i < x.limbs.size(); ++i) {
        uint64_t carry = 0;
        for (size_t j = 0; j < y.limbs.size() || carry != 0; ++j) {
            carry += product.limbs[i + j] + x.limbs[i] * (j < y.limbs.size() ? y.limbs[j] : 0);
            product.limbs[i + j] = carry % kBase;
            carry /= kBase;
        }
    }
    trim(product);
    return to_val(product);
}

Division divide_integers(const Val& a, const Val& b) {
    const Big x = to_big(integer_digits(a));
    const Big y = to_big(integer_digits(b));
    CHECK(!y.limbs.empty(), "division by zero is an error of the caller");
    Big rest;
    Big quotient = divide_magnitudes(x, y, rest);
    quotient.is_negative = x.is_negative != y.is_negative;
    rest.is_negative = x.is_negative;
    const bool is_rounded_up = !rest.limbs.empty() && x.is_negative != y.is_negative;
    trim(quotient);
    trim(rest);
    if (!is_rounded_up) return {to_val(quotient), to_val(rest)};
    return {add_integers(to_val(quotient), Val(int64_t{-1})), add_integers(to_val(rest), b)};
}

}  // namespace espalier::text::jinja
