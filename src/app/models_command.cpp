// espalier models: what can be given as MODEL.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "app/builtin_model.h"
#include "app/commands.h"
#include "app/hub_settings.h"
#include "app/sizes.h"
#include "base/json.h"
#include "hub/cache_folder.h"

namespace espalier::app {
namespace {

struct ModelsFlags {
    std::string cache_dir;
    bool as_json = false;
    bool as_names = false;
};

Json to_json(const hub::CachedModel& model) {
    return {{"name", model.name},   {"revision", model.revision}, {"commit", model.commit},   {"type", model.type},
            {"bytes", model.bytes}, {"fetched", model.fetched_s}, {"missing", model.missing}, {"path", model.path}};
}

Status list(const ModelsFlags& flags) {
    std::string cache_dir = flags.cache_dir;
    if (cache_dir.empty()) {
        TRY_ASSIGN(const HubSettings settings, hub_settings());
        cache_dir = settings.cache_dir;
    }
    TRY_ASSIGN(const auto models, hub::list_models(cache_dir));
    const auto builtin = find_builtin_model();
    if (flags.as_names) {
        if (builtin) std::puts(kBuiltinName);
        for (const hub::CachedModel& model : models) {
            if (model.missing.empty()) std::puts(model.name.c_str());
        }
        return {};
    }
    if (flags.as_json) {
        Json rows = Json::array();
        for (const hub::CachedModel& model : models) rows.push_back(to_json(model));
        const Json json = {{"directory", cache_dir}, {"builtin", builtin ? Json(*builtin) : Json()}, {"models", std::move(rows)}};
        std::puts(dump_json(json, 2).c_str());
        return {};
    }
    size_t width = 20;
    for (const hub::CachedModel& model : models) width = std::max(width, model.name.size());
    std::printf("%-*s  %10s  %-16s  %s\n", static_cast<int>(width), "model", "size", "type", "");
    if (builtin) std::printf("%-*s  %10s  %-16s  %s\n", static_cast<int>(width), kBuiltinName, "", "", "built in, a demo");
    for (const hub::CachedModel& model : models) {
        const std::string state =
            model.missing.empty() ? "" : fmt::format("lacks {}: espalier pull {}", model.missing, model.name);
        std::printf("%-*s  %10s  %-16s  %s\n", static_cast<int>(width), model.name.c_str(), size_text(model.bytes).c_str(),
                    model.type.c_str(), state.c_str());
    }
    std::printf("%zu in %s\n", models.size(), cache_dir.c_str());
    return {};
}

}  // namespace

void add_models(CLI::App& parent, Action& action) {
    auto flags = std::make_shared<ModelsFlags>();
    CLI::App* c = parent.add_subcommand("models", "Lists the models on this machine that can be given by name");
    c->add_option("--hub-cache", flags->cache_dir, "Folder of the models; default: that of the Hugging Face tools");
    c->add_flag("--json", flags->as_json, "Print the result as JSON");
    c->add_flag("--names", flags->as_names, "Print the names only, of models that are wholly there");
    c->footer("Example: espalier models");
    c->callback([flags, &action] { action = [flags] { return list(*flags); }; });
}

}  // namespace espalier::app
