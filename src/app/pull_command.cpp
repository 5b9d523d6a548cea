// espalier pull: a model from a hub into the cache folder. The one command that connects anywhere.
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>

#include "app/commands.h"
#include "app/hub_settings.h"
#include "app/sizes.h"
#include "base/json.h"
#include "base/log.h"
#include "hub/digest.h"
#include "hub/pull.h"

namespace espalier::app {
namespace {

using Clock = std::chrono::steady_clock;

struct PullFlags {
    std::string what;
    std::string revision;
    std::string cache_dir;
    int n_connections = 4;
    bool as_json = false;
};

// The line on the terminal: which file, how far, how fast.
class Progress {
public:
    void show(std::string_view file, hub::Phase phase, int64_t done, int64_t total) {
        const auto now = Clock::now();
        if (phase != phase_ || first_bytes_ < 0) {
            phase_ = phase;
            begin_ = now;
            first_bytes_ = done;
        }
        if (now - shown_ < std::chrono::milliseconds(100)) return;
        shown_ = now;
        const double seconds = std::chrono::duration<double>(now - begin_).count();
        const double rate = seconds > 0.5 ? static_cast<double>(done - first_bytes_) / seconds : 0;
        std::string text = fmt::format("{:3.0f} % of {}  {} {}",
                                       total > 0 ? 100.0 * static_cast<double>(done) / static_cast<double>(total) : 0.0,
                                       size_text(total), phase == hub::Phase::checking ? "checking" : "fetching", file);
        if (rate > 0) text += fmt::format("  {}/s", size_text(static_cast<int64_t>(rate)));
        if (rate > 0 && phase == hub::Phase::fetching)
            text += fmt::format("  {} left", time_text(static_cast<double>(total - done) / rate));
        line_.update(text);
    }
    void note(std::string_view text) {
        line_.finish();
        std::fprintf(stderr, "%s\n", std::string(text).c_str());
    }

private:
    static std::string time_text(double seconds) {
        const auto whole = static_cast<int64_t>(seconds);
        if (whole >= 3600) return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
        return fmt::format("{}:{:02}", whole / 60, whole % 60);
    }
    ProgressLine line_;
    hub::Phase phase_ = hub::Phase::fetching;
    Clock::time_point begin_;
    Clock::time_point shown_;
    int64_t first_bytes_ = -1;
};

Json to_json(const hub::PullReport& report) {
    Json files = Json::array();
    for (const hub::PulledFile& file : report.files) {
        files.push_back({{"name", file.name},
                         {"bytes", file.bytes},
                         {"received_bytes", file.received_bytes},
                         {"checksum", hub::to_string(hub::checksum_of(file.blob))},
                         {"blob", file.blob}});
    }
    return {{"repo", report.repo},
            {"revision", report.revision},
            {"commit", report.commit},
            {"path", report.path},
            {"received_bytes", report.received_bytes},
            {"files", std::move(files)}};
}

Status pull(const PullFlags& flags) {
    TRY_ASSIGN(const HubSettings settings, hub_settings());
    hub::PullOptions options;
    TRY_ASSIGN(options.what, hub::parse_repo_request(flags.what));
    if (!flags.revision.empty()) {
        if (!options.what.revision.empty()) return invalid_input("a revision after @ and another by --revision: give one");
        if (!hub::is_revision(flags.revision)) return invalid_input(fmt::format("\"{}\" is no revision", flags.revision));
        options.what.revision = flags.revision;
    }
    options.cache_dir = flags.cache_dir.empty() ? settings.cache_dir : flags.cache_dir;
    options.http = settings.http;
    options.proxy = settings.proxy;
    options.n_connections = flags.n_connections;
    options.is_offline = settings.is_offline;
    std::signal(SIGPIPE, SIG_IGN);  // a connection that closes is an error code
    Progress progress;
    hub::PullWatch watch;
    watch.progress = [&](std::string_view file, hub::Phase phase, int64_t done, int64_t total) {
        progress.show(file, phase, done, total);
    };
    watch.note = [&](std::string_view text) { progress.note(text); };
    TRY_ASSIGN(const hub::PullReport report, hub::pull(options, watch));
    progress.note(report.received_bytes > 0 ? fmt::format("{} at {}: {} fetched and checked", report.repo, report.revision,
                                                          size_text(report.received_bytes))
                                            : fmt::format("{} at {}: all there", report.repo, report.revision));
    const bool is_main = report.revision == "main";
    const bool is_usable = options.what.file.empty() && flags.cache_dir.empty();
    if (is_usable) {
        std::fprintf(stderr, "try      espalier run %s%s \"Hello\"\n", report.repo.c_str(),
                     is_main ? "" : ("@" + report.revision).c_str());
    }
    if (flags.as_json) {
        std::puts(dump_json(to_json(report), 2).c_str());
    } else {
        std::puts((options.what.file.empty() ? report.path : report.path + "/" + options.what.file).c_str());
    }
    return {};
}

}  // namespace

void add_pull(CLI::App& parent, Action& action) {
    auto flags = std::make_shared<PullFlags>();
    CLI::App* c = parent.add_subcommand("pull", "Fetches a model from a Hugging Face compatible hub");
    c->add_option("REPO", flags->what, "ORG/NAME, ORG/NAME@REVISION; with :FILE only that file")->required();
    c->add_option("--revision", flags->revision, "Branch, tag or commit; default: main");
    c->add_option("--hub-cache", flags->cache_dir, "Folder to keep models in; default: that of the Hugging Face tools");
    c->add_option("--connections", flags->n_connections, "Connections for a large file")
        ->check(CLI::Range(1, 16))
        ->capture_default_str();
    c->add_flag("--json", flags->as_json, "Print the result as JSON");
    c->footer(
        "Example: espalier pull Qwen/Qwen3.5-0.8B\nReads HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE and "
        "the proxy variables. An interrupted pull goes on where it ended.");
    c->callback([flags, &action] { action = [flags] { return pull(*flags); }; });
}

}  // namespace espalier::app
