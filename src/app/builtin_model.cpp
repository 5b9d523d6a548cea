#include "app/builtin_model.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "app/hub_settings.h"
#include "checkpoint/gguf_files.h"
#include "hub/cache_folder.h"
#include "hub/names.h"

namespace espalier::app {
namespace {

// A name in the hub's cache.
Result<std::string> find_by_name(const std::string& name) {
    TRY_ASSIGN(const HubSettings settings, hub_settings());
    TRY_ASSIGN(const auto models, hub::list_models(settings.cache_dir));
    const auto model = hub::find_model(models, name);
    if (!model) {
        return invalid_input(fmt::format("{} is neither a folder nor a model in {}; espalier models lists those that are there{}",
                                         hub::printable(name), settings.cache_dir,
                                         name.find('/') != std::string::npos ? ", espalier pull " + name + " fetches it" : ""));
    }
    if (!model->missing.empty())
        return invalid_input(
            fmt::format("{} lacks {}; espalier pull {} fetches the rest", model->name, model->missing, model->name));
    return model->path;
}

}  // namespace

Result<std::string> find_builtin_model() {
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
    if (error)
        return internal_error(fmt::format("cannot tell where this program lies: {}; give a MODEL folder", error.message()));
    const std::filesystem::path places[] = {folder / "../share/espalier/model", folder / "../../demo/model"};
    for (const std::filesystem::path& place : places) {
        if (std::filesystem::exists(place / "config.json", error))
            return std::filesystem::weakly_canonical(place, error).string();
    }
    return invalid_input(fmt::format("no MODEL given, and the built-in model is neither in {} nor in {}; give a MODEL folder",
                                     places[0].lexically_normal().string(), places[1].lexically_normal().string()));
}

Result<std::string> model_or_builtin(const std::string& given) {
    std::error_code error;
    if (given == kBuiltinName && !std::filesystem::exists(given, error)) return find_builtin_model();
    if (!given.empty()) {
        const bool is_name = !std::filesystem::exists(given, error) && given.find_first_of("/.~") != 0;
        return is_name ? find_by_name(given) : checkpoint::gguf_in_folder(given);
    }
    TRY_ASSIGN(std::string builtin, find_builtin_model());
    std::fputs(
        "no MODEL given: using the built-in demo model, which knows only a small world of shell tasks and functions; a real one: "
        "espalier pull ORG/NAME, or the folder of a Qwen3.5/3.6 checkpoint\n",
        stderr);
    return builtin;
}

std::string model_display_name(const std::string& path) {
    if (const auto repo = hub::repo_of_snapshot(path)) return repo->substr(repo->find('/') + 1);
    if (const auto builtin = find_builtin_model(); builtin && *builtin == path) return kBuiltinName;
    const std::filesystem::path folder = std::filesystem::path(path).lexically_normal();
    return (folder.has_filename() ? folder : folder.parent_path()).filename().string();
}

bool is_model_name(const std::string& word) {
    if (word == kBuiltinName) return true;
    const auto settings = hub_settings();
    if (!settings) return false;
    const auto models = hub::list_models(settings->cache_dir);
    return models && hub::find_model(*models, word).has_value();
}

}  // namespace espalier::app
