// espalier run: one answer on stdout as it is produced, or a chat when no prompt is given.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "app/builtin_model.h"
#include "app/commands.h"
#include "app/model_files.h"
#include "base/environment.h"
#include "engine/local_engine.h"
#include "text/chat_request.h"

namespace espalier::app {
namespace {

struct RunFlags {
    engine::ModelOptions model;
    std::string prompt;
    std::string system;
    std::string chat_template;
    std::optional<float> temperature;
    uint64_t seed = 42;
    int32_t max_tokens = 1024;
    std::string thinking = "off";
    bool show_stats = false;
};

void print_stats(const engine::Timings& t) {
    const double decode_s = t.decode_ms / 1000;
    std::fprintf(stderr, "\nprompt %d tokens (%d cached) in %.0f ms, reply %d tokens in %.0f ms (%.1f tokens/s)\n",
                 t.prompt_tokens, t.cached_tokens, t.prefill_ms, t.output_tokens, t.decode_ms,
                 decode_s > 0 ? (t.output_tokens - 1) / decode_s : 0.0);
}

// Submits one request and prints its text as it arrives. Returns the whole reply.
Result<std::string> answer(engine::LocalEngine& engine, const ModelFiles& files, const RunFlags& flags,
                           const text::ChatRequest& request) {
    engine::Job job;
    if (files.chat_template) {
        TRY_ASSIGN(text::RenderedPrompt prompt, text::render_chat(*files.chat_template, *files.tokenizer, request));
        job.prompt = std::move(prompt.ids);
        for (const text::StableBoundary& boundary : prompt.stable_boundaries) {
            const bool is_user = boundary.follower == text::StableBoundary::Follower::user;
            job.boundaries.push_back(
                {boundary.tokens, is_user ? engine::Boundary::Kind::before_user : engine::Boundary::Kind::before_tool});
        }
    } else {
        job.prompt = files.tokenizer->encode(request.messages.back().content.value_or(""));
    }
    job.sampling.temperature = flags.temperature.value_or(files.sampling.temperature);
    job.sampling.top_k = files.sampling.top_k;
    job.sampling.top_p = files.sampling.top_p;
    job.sampling.min_p = files.sampling.min_p;
    job.sampling.repetition_penalty = files.sampling.repetition_penalty;
    job.sampling.seed = flags.seed;
    job.max_tokens = flags.max_tokens;
    job.stop_ids = all_stop_ids(engine.eos_ids(), files);
    TRY_ASSIGN(auto stream, engine.submit(std::move(job)));
    text::DecodeStream decoder(*files.tokenizer, text::SkipSpecial::no);
    std::string reply;
    const auto print = [&](const std::string& text) {
        std::fwrite(text.data(), 1, text.size(), stdout);
        std::fflush(stdout);
        reply += text;
    };
    for (;;) {
        const auto event = stream->wait_next(1000);
        if (!event) continue;
        if (event->kind == engine::JobEvent::Kind::failed) return event->error;
        for (const engine::TokenId id : event->tokens) print(decoder.push(id));
        if (event->kind != engine::JobEvent::Kind::finished) continue;
        print(decoder.flush());
        std::fputs("\n", stdout);
        if (flags.show_stats) print_stats(event->timings);
        return reply;
    }
}

// With one word only, a word that can be neither folder nor name of a model is the prompt.
void take_lone_word_for_prompt(RunFlags& flags) {
    const std::string& word = flags.model.path;
    const bool may_be_path = word.find('/') != std::string::npos && word.find(' ') == std::string::npos;
    if (!flags.prompt.empty() || word.empty() || may_be_path || std::filesystem::exists(word) || is_model_name(word)) return;
    flags.prompt = std::exchange(flags.model.path, environment_variable("ESPALIER_MODEL").value_or(""));
}

Status run(RunFlags& flags) {
    take_lone_word_for_prompt(flags);
    TRY_ASSIGN(flags.model.path, model_or_builtin(flags.model.path));
    TRY_ASSIGN(const ModelFiles files, load_model_files(flags.model.path, flags.chat_template));
    engine::EngineOptions options;
    options.model = flags.model;
    options.sequences_max = 1;
    TRY_ASSIGN(auto engine, engine::LocalEngine::start(options, files.tokenizer));

    text::ChatRequest request;
    request.thinking = flags.thinking == "on" ? text::Thinking::on : text::Thinking::off;
    if (!flags.system.empty()) request.messages.push_back({"system", flags.system, {}, {}, "", ""});
    if (!flags.prompt.empty()) {
        request.messages.push_back({"user", flags.prompt, {}, {}, "", ""});
        const auto reply = answer(*engine, files, flags, request);
        return reply ? Status() : Status(reply.error());
    }
    const bool is_terminal = isatty(STDIN_FILENO) == 1;
    std::string line;
    while (true) {
        if (is_terminal) std::fputs("> ", stderr);
        if (!std::getline(std::cin, line)) return {};
        if (line.empty()) continue;
        request.messages.push_back({"user", line, {}, {}, "", ""});
        TRY_ASSIGN(std::string reply, answer(*engine, files, flags, request));
        request.messages.push_back({"assistant", std::move(reply), {}, {}, "", ""});
    }
}

}  // namespace

void add_run(CLI::App& parent, Action& action) {
    auto flags = std::make_shared<RunFlags>();
    CLI::App* c = parent.add_subcommand("run", "Answers one prompt, or chats when no prompt is given");
    add_model_options(*c, flags->model);
    c->add_option("PROMPT", flags->prompt, "What to ask; none = a chat, one message per line");
    c->add_option("--system", flags->system, "System message");
    c->add_option("--chat-template", flags->chat_template, "Template file instead of the model's own");
    c->add_option("--temp", flags->temperature, "Temperature, 0 = greedy; default: the model's own")
        ->check(CLI::Range(0.0, 100.0));
    c->add_option("--seed", flags->seed, "Seed of the sampler")->capture_default_str();
    c->add_option("--max-tokens", flags->max_tokens, "Longest reply")->check(CLI::Range(1, 1 << 30))->capture_default_str();
    c->add_option("--thinking", flags->thinking, "on or off")->check(CLI::IsMember({"on", "off"}))->capture_default_str();
    c->add_flag("--stats", flags->show_stats, "Print token counts and speed on stderr");
    c->footer("Example: espalier run MODEL \"Name three trees.\" --temp 0");
    c->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace espalier::app
