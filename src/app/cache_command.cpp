// espalier cache: the conversations on disk, listed and erased.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "app/cache_paths.h"
#include "app/commands.h"
#include "app/sizes.h"
#include "base/json.h"
#include "cache/disk_io.h"
#include "cache/disk_listing.h"

namespace espalier::app {
namespace {

struct CacheFlags {
    std::string directory;
    cache::RemovalRequest removal;
    bool as_json = false;
};

Result<std::string> directory_of(const CacheFlags& flags) {
    if (!flags.directory.empty()) return flags.directory;
    return default_cache_dir();
}

double age_seconds(int64_t used_ns) {
    return std::max(0.0, static_cast<double>(cache::unix_now_ns() - used_ns) / 1e9);
}

std::string age_text(double seconds) {
    if (seconds < 60) return "just now";
    if (seconds < 2 * 3600) return fmt::format("{:.0f} min ago", seconds / 60);
    if (seconds < 2 * 86400) return fmt::format("{:.0f} h ago", seconds / 3600);
    return fmt::format("{:.0f} days ago", seconds / 86400);
}

Json to_json(const cache::StoredConversation& conversation) {
    const cache::DiskIdentity& identity = conversation.identity;
    return {{"id", conversation.id},
            {"model", identity.model},
            {"model_hash", identity.model_hash},
            {"acts", identity.acts},
            {"kv_type", identity.kv_type},
            {"kernels", identity.kernels},
            {"tokens", conversation.tokens},
            {"snapshots", conversation.snapshots},
            {"bytes", conversation.bytes},
            {"age_s", age_seconds(conversation.used_ns)}};
}

Status list(const CacheFlags& flags) {
    TRY_ASSIGN(const std::string directory, directory_of(flags));
    TRY_ASSIGN(const cache::DiskListing listing, cache::list_conversations(directory));
    if (flags.as_json) {
        Json conversations = Json::array();
        for (const auto& conversation : listing.conversations) conversations.push_back(to_json(conversation));
        const Json json = {{"directory", directory},
                           {"bytes", listing.bytes},
                           {"damaged_files", listing.n_damaged},
                           {"unreadable_files", listing.n_unreadable},
                           {"unknown_files", listing.n_unknown},
                           {"conversations", std::move(conversations)}};
        std::puts(dump_json(json, 2).c_str());
        return {};
    }
    if (listing.conversations.empty()) std::printf("no conversations in %s\n", directory.c_str());
    else std::printf("%-16s  %9s  %9s  %10s  %-12s  %s\n", "conversation", "tokens", "snapshots", "size", "last used", "model");
    for (const auto& conversation : listing.conversations) {
        std::printf("%-16s  %9d  %9d  %10s  %-12s  %s\n", conversation.id.c_str(), conversation.tokens, conversation.snapshots,
                    size_text(conversation.bytes).c_str(), age_text(age_seconds(conversation.used_ns)).c_str(),
                    conversation.identity.model.c_str());
    }
    if (listing.n_damaged > 0) std::printf("%d damaged files\n", listing.n_damaged);
    if (listing.n_unreadable > 0) std::printf("%d files that cannot be read now\n", listing.n_unreadable);
    if (listing.n_unknown > 0) std::printf("%d files of another version of Espalier\n", listing.n_unknown);
    if (listing.bytes > 0) std::printf("%s in %s\n", size_text(listing.bytes).c_str(), directory.c_str());
    return {};
}

Status remove(const CacheFlags& flags) {
    TRY_ASSIGN(const std::string directory, directory_of(flags));
    TRY_ASSIGN(const cache::RemovalResult result, cache::remove_conversations(directory, flags.removal));
    if (flags.as_json) {
        std::puts(
            dump_json({{"directory", directory}, {"conversations", result.conversations}, {"bytes", result.bytes}}, 2).c_str());
        return {};
    }
    std::printf("%d conversations erased, %s\n", result.conversations, size_text(result.bytes).c_str());
    return {};
}

void add_common(CLI::App& command, CacheFlags& flags) {
    command.add_option("--cache-dir", flags.directory, "Folder of the conversations, default: the one that serve uses");
    command.add_flag("--json", flags.as_json, "Print the result as JSON");
}

}  // namespace

void add_cache(CLI::App& parent, Action& action) {
    auto flags = std::make_shared<CacheFlags>();
    CLI::App* cache = parent.add_subcommand("cache", "Lists and erases the conversations kept on disk");
    cache->require_subcommand(1);
    cache->footer("Example: espalier cache ls");
    CLI::App* ls = cache->add_subcommand("ls", "Lists stored conversations: size, age, model");
    add_common(*ls, *flags);
    ls->footer("Example: espalier cache ls --json");
    ls->callback([flags, &action] { action = [flags] { return list(*flags); }; });
    CLI::App* rm = cache->add_subcommand("rm", "Erases stored conversations");
    CLI::App* what = rm->add_option_group("What to erase");
    what->add_option("ID", flags->removal.ids, "Conversations, or the first digits of their names");
    what->add_flag("--all", flags->removal.is_all, "Every conversation, and damaged files too");
    what->require_option(1);
    add_common(*rm, *flags);
    rm->footer("Example: espalier cache rm 3fa1");
    rm->callback([flags, &action] { action = [flags] { return remove(*flags); }; });
}

}  // namespace espalier::app
