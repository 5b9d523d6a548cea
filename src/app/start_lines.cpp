#include "app/start_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

#include "app/commands.h"
#include "app/sizes.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "checkpoint/checkpoint.h"

namespace espalier::app {
namespace {

constexpr size_t kSelfTestBytesMax = size_t{1} << 20;
constexpr size_t kSelfTestTokensMax = 4096;

// "nvfp4 81 %, bf16 19 %" of the bytes of linear modules.
std::string formats(const std::string& path) {
    const auto checkpoint = checkpoint::Checkpoint::open(path);
    if (!checkpoint) return "unknown formats";
    std::map<std::string, int64_t> bytes_of;
    int64_t total = 0;
    for (const checkpoint::ModuleInfo& module : (*checkpoint)->modules()) {
        bytes_of[std::string(to_string(module.layout))] += module.bytes;
        total += module.bytes;
    }
    std::vector<std::pair<int64_t, std::string>> order;
    for (const auto& [name, bytes] : bytes_of) order.emplace_back(bytes, name);
    std::sort(order.rbegin(), order.rend());
    std::string text;
    for (const auto& [bytes, name] : order)
        text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", name,
                            100.0 * static_cast<double>(bytes) / static_cast<double>(total));
    return text;
}

std::string detail(const engine::BackendInfo& info, std::string_view name) {
    for (const auto& [key, value] : info.details) {
        if (key == name) return value;
    }
    return "";
}

std::string context_line(const engine::BackendInfo& info, const engine::EngineOptions& options) {
    const std::string trained = detail(info, "context_trained");
    std::string why = fmt::format("what fits; the model is trained for {}: --ctx, --cache-ram", trained);
    if (options.context_tokens > 0) why = "as asked for";
    else if (trained == fmt::format("{}", info.context_tokens)) why = "all that the model is trained for";
    return fmt::format("{} tokens ({}), {} requests at a time", info.context_tokens, why, info.sequences_max);
}

// The address to give to a program on this machine.
std::string reachable(std::string url) {
    for (const auto& [any, here] : {std::pair("//0.0.0.0:", "//127.0.0.1:"), std::pair("//[::]:", "//[::1]:")}) {
        const std::string_view word = any;
        if (const size_t at = url.find(word); at != std::string::npos) return url.replace(at, word.size(), here);
    }
    return url;
}

Result<std::vector<int32_t>> ids_of(const Json& json, const char* name, const std::string& path) {
    const auto found = json.is_object() ? json.find(name) : json.end();
    std::vector<int32_t> ids;
    const auto bad = [&] { return invalid_input(fmt::format("{}: expected {{\"prompt\": [ids], \"reply\": [ids]}}", path)); };
    if (!json.is_object() || found == json.end() || !found->is_array() || found->empty() || found->size() > kSelfTestTokensMax)
        return bad();
    for (const Json& id : *found) {
        if (!id.is_number_integer() || id < 0 || id > INT32_MAX) return bad();
        ids.push_back(id.get<int32_t>());
    }
    return ids;
}

}  // namespace

std::string start_lines(const StartFacts& facts) {
    const engine::BackendInfo& info = facts.context.backend->info();
    const server::ServerContext& context = facts.context;
    const std::string url = reachable(facts.url);
    const std::string drafts = detail(info, "draft");
    const std::string& directory = facts.options.disk.directory;
    const int64_t ram = facts.context.backend->gauges().cache_budget_bytes;
    std::string text;
    const auto add = [&](std::string_view name, const std::string& value) { text += fmt::format("{:<8} {}\n", name, value); };
    text += version_text() + "\n";
    add("model", fmt::format("{}: {}, activations {}, keys and values {}, {} threads; self-test passed{}", context.alias,
                             formats(facts.path), info.acts, info.kv_type, info.n_threads,
                             facts.is_self_tested ? "" : " (finite numbers)"));
    add("memory", fmt::format("{} weights, {} conversations, {} left", size_text(info.weight_bytes), size_text(ram),
                              size_text(engine::available_memory_bytes())));
    add("context", context_line(info, facts.options));
    add("drafts", drafts.empty() ? "off" : drafts);
    add("cache", directory.empty()
                     ? "in memory only"
                     : fmt::format("in memory, then {} (at most {})", directory, size_text(facts.options.disk.bytes_max)));
    add("serving", fmt::format("{} as \"{}\", tool calls: {}", facts.url, context.alias,
                               context.chat_template ? context.tool_format.name : "none (the model has no chat template)"));
    const std::string key = facts.has_key ? " -H \"Authorization: Bearer $ESPALIER_API_KEY\"" : "";
    add("try", fmt::format("curl {}/v1/chat/completions{} -d '{{\"messages\": [{{\"role\": \"user\", \"content\": \"Hi\"}}]}}'",
                           url, key));
    add("agents",
        fmt::format("OPENAI_BASE_URL={}/v1 OPENAI_API_KEY={}, any model name", url, facts.has_key ? "<yours>" : "none"));
    return text;
}

Result<engine::SelfTest> read_self_test(const std::string& model_path) {
    const std::string path = model_path + "/self_test.json";
    engine::SelfTest test;
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return test;
    TRY_ASSIGN(const std::string text, read_file(path, kSelfTestBytesMax));
    TRY_ASSIGN(const Json json, parse_json(text, path, 4));
    TRY_ASSIGN(test.prompt, ids_of(json, "prompt", path));
    TRY_ASSIGN(test.reply, ids_of(json, "reply", path));
    return test;
}

}  // namespace espalier::app
