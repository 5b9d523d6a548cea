// Python's operators on template values: truth, equality, order, arithmetic, membership, subscripts, text forms.
// Functions that can fail return false after Runtime::fail.
#pragma once

#include <string>

#include "text/jinja/object.h"
#include "text/jinja/runtime.h"

namespace espalier::text::jinja {

enum class BinaryOp { add, sub, mul, div, floor_div, mod, pow };
enum class CompareOp { eq, ne, lt, le, gt, ge, in, not_in };

// "str", "int", "NoneType", "list", "jinja2.utils.Namespace", as error messages name types.
std::string type_name(const Val& value);
// With the module, for the attribute errors of the template engine's own types.
std::string qualified_type_name(const Val& value);

bool is_true(const Val& value);
bool equals(const Val& a, const Val& b);
// Python's bool, int or float that fits: for arithmetic on mixed numbers.
bool is_number(const Val& value);
// As integer, booleans included; false for anything else (big integers too).
bool to_int64(const Val& value, int64_t& out);
// Any number as double; false for anything else.
bool to_double(const Val& value, double& out);

[[nodiscard]] bool less(Runtime& rt, const Val& a, const Val& b, bool& out, const char* op = "<");
[[nodiscard]] bool compare(Runtime& rt, CompareOp op, const Val& a, const Val& b, bool& out);
[[nodiscard]] bool arithmetic(Runtime& rt, BinaryOp op, const Val& a, const Val& b, Val& out);
[[nodiscard]] bool negate(Runtime& rt, const Val& value, Val& out);

// str(value) and repr(value).
[[nodiscard]] bool append_str(Runtime& rt, std::string& out, const Val& value);
[[nodiscard]] bool append_repr(Runtime& rt, std::string& out, const Val& value, int depth = 0);

struct JsonStyle {
    std::string item_separator = ", ";
    std::string key_separator = ": ";
    bool has_indent = false;
    std::string indent;
    bool sort_keys = false;
    bool ascii = false;
};
[[nodiscard]] bool append_json(Runtime& rt, std::string& out, const Val& value, const JsonStyle& style, int depth = 0);

// All items that iterating gives (characters, keys, elements); an iterator is used up.
[[nodiscard]] bool iterate(Runtime& rt, const Val& value, ValList& out);
[[nodiscard]] bool length_of(Runtime& rt, const Val& value, int64_t& out);

// value[index] and value[start:stop:step]; a missing element is undefined, not an error.
[[nodiscard]] bool get_item(Runtime& rt, const Val& value, const Val& index, Val& out);
struct SliceBounds {
    Val start = Val::none();
    Val stop = Val::none();
    Val step = Val::none();
};
[[nodiscard]] bool get_slice(Runtime& rt, const Val& value, const SliceBounds& bounds, Val& out);

}  // namespace espalier::text::jinja
