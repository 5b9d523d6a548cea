#include "app/sizes.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

namespace espalier::app {

Result<int64_t> parse_size(const std::string& text) {
    const auto bad = [&] { return invalid_input(fmt::format("\"{}\" is no size; write 512M, 4G or a number of bytes", text)); };
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || !(number >= 0)) return bad();
    std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
    if (unit.ends_with("iB")) unit.remove_suffix(2);
    else if (unit.ends_with('B')) unit.remove_suffix(1);
    double factor = 1;
    if (unit.size() > 1) return bad();
    if (unit.size() == 1) {
        const size_t power = std::string_view("KMGT").find(unit[0] >= 'a' ? static_cast<char>(unit[0] - 'a' + 'A') : unit[0]);
        if (power == std::string_view::npos) return bad();
        for (size_t i = 0; i <= power; ++i) factor *= 1024;
    }
    if (number * factor > 9e18) return bad();
    return static_cast<int64_t>(number * factor);
}

std::string size_text(int64_t bytes) {
    if (bytes >= int64_t{10} << 30) return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (int64_t{1} << 30));
    return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace espalier::app
