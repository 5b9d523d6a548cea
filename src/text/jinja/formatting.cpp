#include "text/jinja/formatting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>

#include "text/jinja/big_integer.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace espalier::text::jinja {
namespace {

constexpr int64_t kWidthMax = 1'000'000;
constexpr int kPrecisionMax = 1000;

struct Spec {
    std::string fill = " ";
    Align align = Align::right;
    bool has_align = false;
    char sign = '-';
    bool is_alternate = false;
    bool has_comma = false;
    int64_t width = 0;
    int precision = -1;
    char type = 0;
};

bool read_number(std::string_view text, size_t& at, int64_t& out) {
    out = 0;
    while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0) {
        out = std::min(out * 10 + (text[at] - '0'), kWidthMax + 1);
        ++at;
    }
    return out <= kWidthMax;
}

std::string with_sign(std::string digits, char sign) {
    if (digits.empty() || digits[0] == '-' || sign == '-') return digits;
    digits.insert(digits.begin(), sign);
    return digits;
}

void add_commas(std::string& digits) {
    const size_t first = digits.find_first_of("0123456789");
    size_t end = digits.find_first_not_of("0123456789", first);
    if (end == std::string::npos) end = digits.size();
    while (end > first + 3) {
        end -= 3;
        digits.insert(end, ",");
    }
}

bool format_float(double value, const Spec& spec, std::string& out) {
    const int precision = spec.precision < 0 ? 6 : spec.precision;
    if (precision > kPrecisionMax) return false;
    if (!std::isfinite(value)) {
        out = std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
        if (std::isupper(static_cast<unsigned char>(spec.type)) != 0) out = to_upper(out);
        return true;
    }
    const char form[] = {'%', '.', '*', spec.type, 0};
    const char alternate[] = {'%', '#', '.', '*', spec.type, 0};
    char buffer[1500];
    // The format is one of the fixed shapes above; its letter was checked by the caller.
    const int n = std::snprintf(buffer, sizeof(buffer), spec.is_alternate ? alternate : form, precision, value);
    out.assign(buffer, static_cast<size_t>(std::min<int>(n, sizeof(buffer) - 1)));
    return true;
}

bool format_integer(Runtime& rt, const Val& value, const Spec& spec, std::string& out) {
    if (spec.type == 'd' || spec.type == 'i' || spec.type == 'u') {
        out = integer_digits(value);
        return true;
    }
    int64_t number = 0;
    if (!to_int64(value, number)) return rt.fail(ErrorKind::unsupported, "an integer beyond 64 bits in another base than 10");
    const auto magnitude = number < 0 ? ~static_cast<uint64_t>(number) + 1 : static_cast<uint64_t>(number);
    out = number < 0 ? "-" : "";
    if (spec.is_alternate) out += fmt::format("0{}", spec.type);
    switch (spec.type) {
        case 'x': out += fmt::format("{:x}", magnitude); break;
        case 'X': out += fmt::format("{:X}", magnitude); break;
        case 'o': out += fmt::format("{:o}", magnitude); break;
        default: out += fmt::format("{:b}", magnitude); break;
    }
    return true;
}

// Pads a finished number or text; zeros go between sign and digits.
std::string finish(std::string text, const Spec& spec) {
    const auto width = static_cast<size_t>(spec.width);
    if (spec.align != Align::after_sign) return pad(text, width, spec.align, spec.fill);
    const size_t n = count_code_points(text);
    if (n >= width) return text;
    const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ') ? 1 : 0;
    std::string zeros;
    for (size_t i = n; i < width; ++i) zeros += spec.fill;
    return text.insert(sign, zeros);
}

bool is_float_type(char type) {
    return std::string_view("eEfFgG").find(type) != std::string_view::npos && type != 0;
}

// ---- the % operator

class PercentFormatter {
public:
    PercentFormatter(Runtime& rt, std::string_view format, const Val& values) : rt_(rt), format_(format), values_(values) {
        const ListObject* list = values.as_list();
        tuple_ = list != nullptr && list->kind == ListObject::Kind::tuple ? list : nullptr;
    }

    bool run(std::string& out) {
        while (at_ < format_.size()) {
            if (format_[at_] != '%') {
                out += format_[at_++];
                continue;
            }
            ++at_;
            if (!field(out)) return false;
            if (out.size() > rt_.limits().text_bytes) return rt_.charge_bytes(out.size());
        }
        const size_t given = tuple_ != nullptr ? tuple_->items.size() : 1;
        const bool is_mapping =
            values_.is_undefined() || values_.as_dict() != nullptr || (values_.as_list() != nullptr && tuple_ == nullptr);
        if (next_ < given && !is_mapping && !used_key_)
            return rt_.fail_type("not all arguments converted during string formatting");
        return true;
    }

private:
    bool fail_incomplete() { return rt_.fail(ErrorKind::value_error, "incomplete format"); }

    bool next(Val& out) {
        if (tuple_ != nullptr ? next_ >= tuple_->items.size() : next_ >= 1) {
            return rt_.fail_type("not enough arguments for format string");
        }
        out = tuple_ != nullptr ? tuple_->items[next_] : values_;
        ++next_;
        return true;
    }

    bool key(Val& value) {
        const size_t close = format_.find(')', at_);
        if (close == std::string_view::npos) return rt_.fail(ErrorKind::value_error, "incomplete format key");
        const std::string_view name = format_.substr(at_ + 1, close - at_ - 1);
        at_ = close + 1;
        const DictObject* dict = values_.as_dict();
        if (dict == nullptr) return rt_.fail_type("format requires a mapping");
        const Val* found = dict->find(name);
        if (found == nullptr) return rt_.fail(ErrorKind::key_error, fmt::format("'{}'", name));
        value = *found;
        used_key_ = true;
        return true;
    }

    bool amount(int64_t& out) {
        if (at_ < format_.size() && format_[at_] == '*') {
            ++at_;
            Val value;
            if (!next(value)) return false;
            return to_int64(value, out) || rt_.fail_type("* wants int");
        }
        return read_number(format_, at_, out) || rt_.fail(ErrorKind::value_error, "width too big");
    }

    bool field(std::string& out) {
        Spec spec;
        Val value;
        const bool has_key = at_ < format_.size() && format_[at_] == '(';
        if (has_key && !key(value)) return false;
        for (; at_ < format_.size(); ++at_) {
            const char c = format_[at_];
            if (c == '-') spec.align = Align::left;
            else if (c == '+') spec.sign = '+';
            else if (c == ' ' && spec.sign != '+') spec.sign = ' ';
            else if (c == '#') spec.is_alternate = true;
            else if (c == '0' && spec.align != Align::left) spec.align = Align::after_sign;
            else if (c != ' ' && c != '0') break;
        }
        if (!amount(spec.width)) return false;
        if (spec.width < 0) spec.align = Align::left;
        spec.width = std::min(std::abs(spec.width), kWidthMax);
        if (at_ < format_.size() && format_[at_] == '.') {
            ++at_;
            int64_t precision = 0;
            if (!amount(precision)) return false;
            spec.precision = static_cast<int>(std::clamp<int64_t>(precision, 0, kWidthMax));
        }
        while (at_ < format_.size() && std::string_view("hlL").find(format_[at_]) != std::string_view::npos) ++at_;
        if (at_ >= format_.size()) return fail_incomplete();
        spec.type = format_[at_++];
        if (spec.type == '%') {
            out += '%';
            return true;
        }
        if (!has_key && !next(value)) return false;
        return convert(value, spec, out);
    }

    bool convert(const Val& value, Spec spec, std::string& out) {
        std::string text;
        const bool is_text = spec.type == 's' || spec.type == 'r' || spec.type == 'a' || spec.type == 'c';
        if (spec.align == Align::after_sign) {
            if (is_text) spec.align = Align::right;
            else spec.fill = "0";
        }
        if (spec.type == 's' ? !append_str(rt_, text, value) : is_text && spec.type != 'c' && !append_repr(rt_, text, value))
            return false;
        double number = 0;
        int64_t code = 0;
        if (spec.type == 'c') {
            if (to_int64(value, code)) append_utf8(text, static_cast<char32_t>(std::clamp<int64_t>(code, 0, 0x110000)));
            else if (value.is_string() && count_code_points(*value.as_string()) == 1) text = *value.as_string();
            else return rt_.fail_type("%c requires int or char");
        } else if (is_text) {
            if (spec.precision >= 0) text.resize(byte_offset(text, static_cast<size_t>(spec.precision)));
        } else if (is_float_type(spec.type)) {
            if (!to_double(value, number)) return rt_.fail_type(fmt::format("must be real number, not {}", type_name(value)));
            if (!format_float(number, spec, text)) return rt_.fail(ErrorKind::value_error, "precision too big");
            text = with_sign(std::move(text), spec.sign);
        } else if (std::string_view("diuoxX").find(spec.type) != std::string_view::npos) {
            if (!integer(value, spec, text)) return false;
        } else {
            return rt_.fail(ErrorKind::value_error, fmt::format("unsupported format character '{}' (0x{:x}) at index {}",
                                                                spec.type, static_cast<unsigned char>(spec.type), at_ - 1));
        }
        out += finish(std::move(text), spec);
        return true;
    }

    bool integer(const Val& value, const Spec& spec, std::string& text) {
        const double* number = value.as_float();
        const bool is_decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
        if (number != nullptr && is_decimal && std::fabs(*number) < 9e18) {
            text = std::to_string(static_cast<int64_t>(*number));
        } else if (is_integer(value)) {
            if (!format_integer(rt_, value, spec, text)) return false;
        } else {
            return rt_.fail_type(fmt::format("%{} format: a{} is required, not {}", spec.type,
                                             is_decimal ? " real number" : "n integer", type_name(value)));
        }
        text = with_sign(std::move(text), spec.sign);
        return true;
    }

    Runtime& rt_;
    std::string_view format_;
    const Val& values_;
    const ListObject* tuple_ = nullptr;
    size_t at_ = 0;
    size_t next_ = 0;
    bool used_key_ = false;
};

// ---- str.format

class BraceFormatter {
public:
    BraceFormatter(Runtime& rt, std::string_view format, const CallArgs& args) : rt_(rt), format_(format), args_(args) {}

    bool run(std::string& out) {
        while (at_ < format_.size()) {
            const char c = format_[at_++];
            const bool is_double = at_ < format_.size() && format_[at_] == c;
            if (c != '{' && c != '}') {
                out += c;
            } else if (is_double) {
                out += c;
                ++at_;
            } else if (c == '}') {
                return rt_.fail(ErrorKind::value_error, "Single '}' encountered in format string");
            } else if (!field(out)) {
                return false;
            }
            if (out.size() > rt_.limits().text_bytes) return rt_.charge_bytes(out.size());
        }
        return true;
    }

private:
    bool field(std::string& out) {
        const size_t close = format_.find('}', at_);
        if (close == std::string_view::npos) return rt_.fail(ErrorKind::value_error, "Single '{' encountered in format string");
        std::string_view body = format_.substr(at_, close - at_);
        at_ = close + 1;
        if (body.find('{') != std::string_view::npos) return rt_.fail(ErrorKind::unsupported, "a nested field in str.format");
        const size_t colon = body.find(':');
        const std::string_view specification = colon == std::string_view::npos ? std::string_view() : body.substr(colon + 1);
        body = body.substr(0, colon);
        char conversion = 0;
        if (const size_t mark = body.find('!'); mark != std::string_view::npos) {
            if (mark + 2 != body.size()) return rt_.fail(ErrorKind::value_error, "expected ':' after conversion specifier");
            conversion = body[mark + 1];
            body = body.substr(0, mark);
        }
        Val value;
        if (!look_up(body, value)) return false;
        if (conversion != 0) {
            std::string text;
            if (conversion == 's' ? !append_str(rt_, text, value) : !append_repr(rt_, text, value)) return false;
            value = Val(std::move(text));
        }
        return convert(value, specification, out);
    }

    bool look_up(std::string_view name, Val& value) {
        const size_t end = std::min(name.find_first_of(".["), name.size());
        std::string_view path = name.substr(end);
        const std::string_view first = name.substr(0, end);
        size_t at = 0;
        int64_t index = 0;
        const bool is_index = read_number(first, at, index) && at == first.size();
        if (is_index) {
            if (first.empty()) index = automatic_++;
            if (index >= static_cast<int64_t>(args_.positional.size())) {
                return rt_.fail(ErrorKind::index_error, "tuple index out of range");
            }
            value = args_.positional[static_cast<size_t>(index)];
        } else {
            const auto found =
                std::find_if(args_.named.begin(), args_.named.end(), [&](const auto& named) { return named.first == first; });
            if (found == args_.named.end()) return rt_.fail(ErrorKind::key_error, fmt::format("'{}'", first));
            value = found->second;
        }
        while (!path.empty()) {
            const size_t close = path.find(']');
            if (path[0] != '[' || close == std::string_view::npos)
                return rt_.fail(ErrorKind::unsupported, "an attribute in str.format");
            const std::string_view key = path.substr(1, close - 1);
            path.remove_prefix(close + 1);
            at = 0;
            const bool is_number_key = !key.empty() && read_number(key, at, index) && at == key.size();
            Val item;
            if (!get_item(rt_, value, is_number_key ? Val(index) : Val(key), item)) return false;
            if (item.is_undefined()) return rt_.fail_undefined(item);
            value = item;
        }
        return true;
    }

    bool parse(std::string_view text, Spec& spec) {
        size_t at = 0;
        static constexpr std::string_view kAligns = "<>^=";
        const auto align_at = [&](size_t i) { return i < text.size() ? kAligns.find(text[i]) : std::string_view::npos; };
        static constexpr Align kMeaning[] = {Align::left, Align::right, Align::center, Align::after_sign};
        const size_t first = text.empty() ? 0 : decode_at(text, 0).bytes;
        if (!text.empty() && align_at(first) != std::string_view::npos) {
            spec.fill = std::string(text.substr(0, first));
            at = first;
        }
        if (const size_t align = align_at(at); align != std::string_view::npos) {
            spec.align = kMeaning[align];
            spec.has_align = true;
            ++at;
        }
        const auto take = [&](char c) { return at < text.size() && text[at] == c ? (++at, true) : false; };
        if (at < text.size() && std::string_view("+- ").find(text[at]) != std::string_view::npos) spec.sign = text[at++];
        spec.is_alternate = take('#');
        if (at < text.size() && text[at] == '0' && !spec.has_align) {
            spec.fill = "0";
            spec.align = Align::after_sign;
            spec.has_align = true;
        }
        if (!read_number(text, at, spec.width)) return false;
        spec.has_comma = take(',');
        int64_t precision = -1;
        if (take('.') && !read_number(text, at, precision)) return false;
        spec.precision = static_cast<int>(precision);
        if (at < text.size()) spec.type = text[at++];
        return at == text.size();
    }

    bool convert(const Val& value, std::string_view specification, std::string& out) {
        std::string text;
        if (specification.empty()) return append_str(rt_, out, value);
        Spec spec;
        if (!parse(specification, spec))
            return rt_.fail(ErrorKind::value_error, fmt::format("Invalid format specifier '{}'", specification));
        double number = 0;
        if (is_number(value) && spec.type != 's') {
            const bool is_percent = spec.type == '%';
            if (is_percent) spec.type = 'f';
            if (spec.type == 0 && value.as_float() != nullptr && spec.precision >= 0) spec.type = 'g';
            if (spec.type == 0 && is_integer(value)) spec.type = 'd';
            if (is_float_type(spec.type)) {
                to_double(value, number);
                if (!format_float(is_percent ? number * 100 : number, spec, text))
                    return rt_.fail(ErrorKind::value_error, "precision too big");
            } else if (spec.type == 0) {
                if (!append_str(rt_, text, value)) return false;
            } else if (is_integer(value) && std::string_view("dxXob").find(spec.type) != std::string_view::npos) {
                if (!format_integer(rt_, value, spec, text)) return false;
            } else {
                return fail_code(spec.type, value);
            }
            if (spec.has_comma) add_commas(text);
            text = with_sign(std::move(text), spec.sign);
            if (is_percent) text += '%';
        } else {
            if (!value.is_string() && !is_number(value)) {
                return rt_.fail_type(fmt::format("unsupported format string passed to {}.__format__", type_name(value)));
            }
            if (spec.type != 0 && spec.type != 's') return fail_code(spec.type, value);
            if (!append_str(rt_, text, value)) return false;
            if (spec.precision >= 0) text.resize(byte_offset(text, static_cast<size_t>(spec.precision)));
            if (!spec.has_align) spec.align = Align::left;
        }
        out += finish(std::move(text), spec);
        return true;
    }

    bool fail_code(char code, const Val& value) {
        return rt_.fail(ErrorKind::value_error,
                        fmt::format("Unknown format code '{}' for object of type '{}'", code, type_name(value)));
    }

    Runtime& rt_;
    std::string_view format_;
    const CallArgs& args_;
    size_t at_ = 0;
    int64_t automatic_ = 0;
};

}  // namespace

bool format_percent(Runtime& rt, const Val& format, const Val& values, Val& out) {
    std::string text;
    if (!PercentFormatter(rt, *format.as_string(), values).run(text)) return false;
    if (!rt.make_text(std::move(text), out)) return false;
    out = out.with_markup(format.is_markup());
    return true;
}

bool format_braces(Runtime& rt, std::string_view format, const CallArgs& args, Val& out) {
    std::string text;
    return BraceFormatter(rt, format, args).run(text) && rt.make_text(std::move(text), out);
}

std::string pad(std::string_view text, size_t width, Align align, std::string_view fill) {
    const size_t n = count_code_points(text);
    if (n >= width) return std::string(text);
    const size_t total = width - n;
    size_t left = 0;
    if (align == Align::right || align == Align::after_sign) left = total;
    if (align == Align::center) left = total / 2;
    std::string out;
    for (size_t i = 0; i < left; ++i) out += fill;
    out += text;
    for (size_t i = left; i < total; ++i) out += fill;
    return out;
}

}  // namespace espalier::text::jinja
