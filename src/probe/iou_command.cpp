#include "probe/iou_command.h"

#include <fmt/format.h>

#include <istream>
#include <ostream>
#include <string>

#include "base/json.h"
#include "bench/iou.h"

namespace espalier::probe {

Status run_iou(std::istream& in, std::ostream& out) {
    std::string text;
    for (int64_t number = 1; std::getline(in, text); ++number) {
        if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
        TRY_ASSIGN(const Json line, parse_json(text, fmt::format("line {}", number)));
        const auto score = bench::score_iou_case(line);
        if (!score) return invalid_input(fmt::format("line {}: {}", number, score.error().message));
        const auto id = line.find("id");
        const Json result{{"id", id == line.end() ? Json() : *id}, {"score", *score ? Json(**score) : Json()}};
        out << dump_json(result) << '\n' << std::flush;
    }
    return {};
}

}  // namespace espalier::probe
