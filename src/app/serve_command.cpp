// espalier serve: listen at once, load, then answer until a signal arrives.
#include <fmt/format.h>
#include <xxhash.h>

#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <mutex>
#include <thread>

#include "app/builtin_model.h"
#include "app/cache_paths.h"
#include "app/commands.h"
#include "app/model_files.h"
#include "app/sizes.h"
#include "app/start_lines.h"
#include "base/environment.h"
#include "engine/local_engine.h"
#include "server/server.h"

namespace espalier::app {
namespace {

struct ServeFlags {
    server::ServerOptions server;
    engine::EngineOptions engine;
    std::string alias;
    std::string thinking = "template";
    std::string chat_template;
    std::string cache_ram;
    std::string cache_dir;
    std::string cache_disk = "20G";
    std::string log_level = "info";
    bool is_public_forced = false;
    bool is_model_strict = false;
};

// The two ending signals, taken by one thread from the start: while the model loads they end the process at once, later they end
// wait().
class EndSignal {
public:
    EndSignal() {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGTERM);
        pthread_sigmask(SIG_BLOCK, &set, nullptr);  // inherited by every later thread
        std::thread([set, state = state_] {
            int signal = 0;
            while (sigwait(&set, &signal) != 0) {
            }
            std::unique_lock lock(state->mutex);
            if (!state->is_serving) std::_Exit(128 + signal);
            state->has_come = true;
            state->changed.notify_all();
        }).detach();
    }
    void wait() const {
        std::unique_lock lock(state_->mutex);
        state_->is_serving = true;
        state_->changed.wait(lock, [this] { return state_->has_come; });
    }

private:
    struct State {
        std::mutex mutex;
        std::condition_variable changed;
        bool is_serving = false;
        bool has_come = false;
    };
    std::shared_ptr<State> state_ = std::make_shared<State>();
};

Result<text::Thinking> parse_thinking(const std::string& word) {
    if (word == "on") return text::Thinking::on;
    if (word == "off") return text::Thinking::off;
    if (word == "template") return text::Thinking::unspecified;
    return invalid_input(fmt::format("--thinking is \"{}\", expected on, off or template", word));
}

Status read_cache_flags(ServeFlags& flags) {
    if (!flags.cache_ram.empty()) {
        TRY_ASSIGN(flags.engine.cache_bytes, parse_size(flags.cache_ram));
    }
    TRY_ASSIGN(flags.engine.disk.bytes_max, parse_size(flags.cache_disk));
    if (flags.cache_dir == "off") return {};
    flags.engine.disk.directory = flags.cache_dir;
    if (!flags.cache_dir.empty()) return {};
    const auto directory = default_cache_dir();
    if (directory) flags.engine.disk.directory = *directory;
    else flags.engine.log.warning(fmt::format("conversations are not kept on disk: {}", directory.error().message));
    return {};
}

std::string hash_template(const ModelFiles& files) {
    if (!files.chat_template) return "";
    const std::string& source = files.chat_template->source();
    return fmt::format("{:016x}", XXH3_64bits(source.data(), source.size()));
}

Status serve(ServeFlags& flags) {
    const EndSignal end_signal;
    TRY_ASSIGN(const text::Thinking thinking, parse_thinking(flags.thinking));
    TRY_ASSIGN(const LogLevel level, parse_log_level(flags.log_level));
    flags.server.log = Log::to_stderr(level);
    flags.engine.log = flags.server.log;
    TRY(read_cache_flags(flags));
    flags.server.version = ESPALIER_VERSION;
    if (flags.is_public_forced) flags.server.key_policy = server::KeyPolicy::may_omit;
    if (const auto key = environment_variable("ESPALIER_API_KEY"); key && flags.server.api_keys.empty())
        flags.server.api_keys.push_back(*key);
    TRY_ASSIGN(flags.engine.model.path, model_or_builtin(flags.engine.model.path));
    TRY_ASSIGN(auto http, server::HttpServer::start(flags.server));

    TRY_ASSIGN(ModelFiles files, load_model_files(flags.engine.model.path, flags.chat_template));
    flags.engine.tool_format = files.tool_format;
    flags.engine.disk.template_hash = hash_template(files);
    TRY_ASSIGN(flags.engine.self_test, read_self_test(flags.engine.model.path));
    flags.engine.model.progress = [&](double share) { http->set_progress(share); };
    TRY_ASSIGN(auto engine, engine::LocalEngine::start(flags.engine, files.tokenizer));

    auto context = std::make_shared<server::ServerContext>();
    context->backend = engine.get();
    context->tokenizer = files.tokenizer;
    context->chat_template = files.chat_template;
    context->tool_format = files.tool_format;
    context->alias = flags.alias.empty() ? model_display_name(flags.engine.model.path) : flags.alias;
    if (context->alias.empty()) context->alias = "espalier";
    context->model_names = flags.is_model_strict ? server::ModelNames::strict : server::ModelNames::any;
    context->thinking = thinking;
    context->stop_ids = all_stop_ids(engine->eos_ids(), files);
    context->sampling = files.sampling;
    context->template_hash = flags.engine.disk.template_hash;
    context->created = static_cast<int64_t>(std::time(nullptr));
    http->attach(context);
    const StartFacts facts{*context,
                           flags.engine,
                           http->url(),
                           flags.engine.model.path,
                           !flags.server.api_keys.empty(),
                           !flags.engine.self_test.reply.empty()};
    std::fputs(start_lines(facts).c_str(), stderr);
    end_signal.wait();
    http->stop(2000);
    return {};
}

}  // namespace

void add_serve(CLI::App& parent, Action& action) {
    auto flags = std::make_shared<ServeFlags>();
    CLI::App* c = parent.add_subcommand("serve", "Serves a model over an OpenAI-compatible HTTP interface");
    add_model_options(*c, flags->engine.model);
    c->add_option("--host", flags->server.host, "Address to listen on")->capture_default_str();
    c->add_option("--port", flags->server.port, "Port, 0 = any free one")->capture_default_str();
    c->add_option("--ctx", flags->engine.context_tokens, "Context in tokens, default: what fits, at least 32768")
        ->check(CLI::Range(1, 1 << 30));
    c->add_option("--parallel", flags->engine.sequences_max, "Requests computed at the same time")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    c->add_option("--alias", flags->alias, "Model name in answers, default: the folder's name");
    c->add_option("--thinking", flags->thinking, "For requests that do not say: on, off, template")
        ->check(CLI::IsMember({"on", "off", "template"}))
        ->capture_default_str();
    c->add_option("--chat-template", flags->chat_template, "Template file instead of the model's own");
    c->add_option("--api-key", flags->server.api_keys, "Key that clients must send; also from ESPALIER_API_KEY");
    c->add_flag("--allow-public", flags->is_public_forced, "Accept a public address without a key");
    c->add_option("--allowed-host", flags->server.allowed_hosts, "Further names accepted in the Host header");
    c->add_option("--allowed-origin", flags->server.allowed_origins, "Web origins that may post");
    c->add_flag("--strict-model", flags->is_model_strict, "Answer 404 for other model names");
    c->add_option("--cache-ram", flags->cache_ram,
                  "Memory for keys, values and snapshots, e.g. 4G, default: a quarter of what is free");
    c->add_option("--cache-dir", flags->cache_dir,
                  "Folder for conversations on disk, or off; default: under the user's cache folder");
    c->add_option("--cache-disk", flags->cache_disk, "Most that conversations on disk may take")->capture_default_str();
    flags->engine.draft = "auto";
    add_draft_option(*c, flags->engine.draft);
    c->add_option("--log-level", flags->log_level, "error, warning, info, debug")
        ->check(CLI::IsMember({"error", "warning", "info", "debug"}))
        ->capture_default_str();
    c->footer("Example: espalier serve MODEL --port 8080 --thinking off");
    c->callback([flags, &action] { action = [flags] { return serve(*flags); }; });
}

}  // namespace espalier::app
