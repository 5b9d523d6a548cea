// Result<T>: a value or an Error, for everything the outside world can get wrong.
//
// Our own mistakes use CHECK (check.h) and abort. A file, a request, memory or a client that misbehaves is an ordinary
// outcome and therefore visible in the signature. std::expected has the same member names but needs C++23; this type is
// small enough to be swapped for it later. No exceptions: a request may fail while the server lives.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace espalier {

// Few codes on purpose: the server maps each to one HTTP status, the command line to one word.
enum class ErrorCode { invalid_input, corrupt_data, unsupported, exhausted, device, cancelled, internal };

// "invalid_input", "corrupt_data", …: the spelling used on stderr and in logs.
std::string_view to_string(ErrorCode code);

// The message says what was found, what was expected, where, and what to do. One line, plain English.
struct Error {
    ErrorCode code = ErrorCode::internal;
    std::string message;
};

inline Error invalid_input(std::string message) {
    return {ErrorCode::invalid_input, std::move(message)};
}
inline Error corrupt_data(std::string message) {
    return {ErrorCode::corrupt_data, std::move(message)};
}
inline Error unsupported(std::string message) {
    return {ErrorCode::unsupported, std::move(message)};
}
inline Error exhausted(std::string message) {
    return {ErrorCode::exhausted, std::move(message)};
}
inline Error cancelled(std::string message) {
    return {ErrorCode::cancelled, std::move(message)};
}
inline Error internal_error(std::string message) {
    return {ErrorCode::internal, std::move(message)};
}

template <class T>
class [[nodiscard]] Result {
public:
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit on purpose
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit on purpose

    bool has_value() const { return state_.index() == 0; }
    explicit operator bool() const { return has_value(); }

    T& value() & { return checked(); }
    const T& value() const& { return const_cast<Result*>(this)->checked(); }
    T&& value() && { return std::move(checked()); }
    T& operator*() & { return checked(); }
    const T& operator*() const& { return value(); }
    T&& operator*() && { return std::move(checked()); }
    T* operator->() { return &checked(); }
    const T* operator->() const { return &value(); }

    const Error& error() const& {
        CHECK(!has_value(), "error() of a Result that holds a value");
        return std::get<1>(state_);
    }
    Error&& error() && {
        CHECK(!has_value(), "error() of a Result that holds a value");
        return std::get<1>(std::move(state_));
    }

private:
    T& checked() {
        CHECK(has_value(), "value() of a Result that holds an error");
        return std::get<0>(state_);
    }
    std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
public:
    Result() = default;
    Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit on purpose

    bool has_value() const { return !error_.has_value(); }
    explicit operator bool() const { return has_value(); }
    const Error& error() const {
        CHECK(!has_value(), "error() of a Result that holds a value");
        return *error_;
    }

private:
    std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace espalier

#define ESPALIER_CONCAT_INNER(a, b) a##b
#define ESPALIER_CONCAT(a, b) ESPALIER_CONCAT_INNER(a, b)

// TRY(expr): return the error of a Status from the enclosing function. May be nested, in a lambda inside expr.
#define TRY(expr) ESPALIER_TRY_NAMED(ESPALIER_CONCAT(try_status_, __COUNTER__), expr)
#define ESPALIER_TRY_NAMED(name, expr)              \
    do {                                            \
        if (auto name = (expr); !name) {            \
            return ::espalier::Error(name.error()); \
        }                                           \
    } while (false)

// TRY_ASSIGN(auto x, expr): bind the value of a Result, or return its error from the enclosing function. Two statements: not for
// the branch of an if without braces.
#define TRY_ASSIGN(declaration, expr) ESPALIER_TRY_ASSIGN_NAMED(ESPALIER_CONCAT(try_result_, __COUNTER__), declaration, expr)
#define ESPALIER_TRY_ASSIGN_NAMED(name, declaration, expr) \
    auto name = (expr);                                    \
    if (!name) {                                           \
        return std::move(name).error();                    \
    }                                                      \
    declaration = *std::move(name)
