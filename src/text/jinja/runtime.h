// One rendering: its limits, its first error, and the owner of every object with identity.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/errors.h"
#include "text/jinja/object.h"

namespace espalier::text::jinja {

struct Limits {
    int64_t steps = 20'000'000;              // node evaluations and elements handled by filters; seconds at most
    size_t created_bytes = size_t{1} << 29;  // text and lists made on the way, all together
    size_t text_bytes = size_t{1} << 26;     // one text, the output included
    int depth = 400;                         // nested evaluations: bounds the C++ stack
};

struct CallArgs {
    ValList positional;
    std::vector<std::pair<std::string, Val>> named;
};

class Runtime {
public:
    explicit Runtime(const Limits& limits) : limits_(limits) {}
    virtual ~Runtime() = default;
    Runtime(const Runtime&) = delete;
    Runtime& operator=(const Runtime&) = delete;

    // Records the first error with the current line. Always false, so that `return rt.fail(…)` reads well.
    bool fail(ErrorKind kind, std::string message);
    bool fail_type(std::string message) { return fail(ErrorKind::type_error, std::move(message)); }
    // The error of using an undefined value for more than printing or testing it.
    bool fail_undefined(const Val& value);
    const TemplateError& error() const { return error_; }

    [[nodiscard]] bool charge_steps(size_t n);
    // Before making n bytes of text or list storage.
    [[nodiscard]] bool charge_bytes(size_t n);

    // Before comparing two values, which walks them both.
    [[nodiscard]] bool charge_comparison(const Val& a, const Val& b);

    // Makes a list of that kind; fails when its values nest too deeply.
    [[nodiscard]] bool make_list(ValList items, ListObject::Kind kind, Val& out);
    // What filters such as map return: can be walked once.
    [[nodiscard]] bool make_iterator(ValList items, const char* type_name, Val& out);
    // What dict.keys(), values() and items() return.
    [[nodiscard]] bool make_view(ValList items, const char* type_name, Val& out);
    struct RangeSpec {
        int64_t start = 0;
        int64_t stop = 0;
        int64_t step = 1;
    };
    [[nodiscard]] bool make_range(RangeSpec spec, ValList items, Val& out);
    [[nodiscard]] bool make_dict(DictObject dict, Val& out);
    [[nodiscard]] bool make_text(std::string text, Val& out);

    template <class T>
    T* own(std::unique_ptr<T> object) {
        T* pointer = object.get();
        objects_.push_back(std::move(object));
        return pointer;
    }

    // Filters and tests by name, for map, select and their relatives. Implemented by the interpreter's tables.
    [[nodiscard]] bool apply_filter(std::string_view name, const Val& value, const CallArgs& args, Val& out);
    [[nodiscard]] bool apply_test(std::string_view name, const Val& value, const CallArgs& args, bool& out);

    const Limits& limits() const { return limits_; }
    void set_line(int line) { line_ = line; }
    int line() const { return line_; }

private:
    [[nodiscard]] bool check_shape(int depth, size_t weight);
    [[nodiscard]] bool finish_list(std::shared_ptr<ListObject> list, Val& out);

    Limits limits_;
    TemplateError error_;
    bool has_failed_ = false;
    int line_ = 0;
    int64_t steps_ = 0;
    size_t created_bytes_ = 0;
    std::vector<std::unique_ptr<Object>> objects_;
    std::vector<std::unique_ptr<bool>> flags_;
};

// The depth of a value: 0 for scalars, 1 + the deepest element for containers.
int depth_of(const Val& value);
// The number of values that walking it meets: 1 for scalars.
size_t weight_of(const Val& value);
std::string undefined_message(const Val& value);

}  // namespace espalier::text::jinja
