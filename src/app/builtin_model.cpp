#include "app/builtin_model.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

namespace espalier::app {

Result<std::string> model_or_builtin(const std::string& given) {
    if (!given.empty()) return given;
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
    if (error)
        return internal_error(fmt::format("cannot tell where this program lies: {}; give a MODEL folder", error.message()));
    const std::filesystem::path places[] = {folder / "../share/espalier/model", folder / "../../demo/model"};
    for (const std::filesystem::path& place : places) {
        if (!std::filesystem::exists(place / "config.json", error)) continue;
        std::fputs(
            "no MODEL given: using the built-in demo model, which knows only a small world of shell tasks and functions; for "
            "real "
            "work give the folder of a Qwen3.5/3.6 checkpoint\n",
            stderr);
        return std::filesystem::weakly_canonical(place, error).string();
    }
    return invalid_input(fmt::format("no MODEL given, and the built-in model is neither in {} nor in {}; give a MODEL folder",
                                     places[0].lexically_normal().string(), places[1].lexically_normal().string()));
}

}  // namespace espalier::app
