#include "cache/disk_store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cache/disk_index.h"
#include "cache/disk_io.h"
#include "cache/disk_read.h"
#include "cache/disk_scan.h"
#include "cache/disk_start.h"
#include "cache/disk_writer.h"

namespace espalier::cache {
namespace {

// What is free now is not all ours: leave a tenth to everybody else.
constexpr int64_t kFreeShareTenths = 9;

}  // namespace

class DiskStore::Impl {
public:
    Impl(const Options& options, Memory& memory, DirectoryLock lock)
        : options_(options), memory_(memory), lock_(std::move(lock)), is_writing_(is_writable_directory(options.directory)) {}

    Status start() {
        const std::string& directory = options_.directory;
        const Log& log = options_.log;
        if (is_open_to_others(directory))
            log.info(fmt::format("{}: other users may look into this directory; its files are private", directory));
        TRY_ASSIGN(DirectoryScan scan, scan_directory(directory));
        auto secret = load_secret(directory);
        if (secret) secret_ = std::move(*secret);
        else if (::access((directory + "/" + kSecretFile).c_str(), F_OK) == 0) return secret.error();
        else is_writing_ = false;
        if (!scan.unreadable.empty())
            log.warning(fmt::format("{}: {} files cannot be read now and are left alone, the first: {}", directory,
                                    scan.unreadable.size(), scan.unreadable.front().message));
        bool can_punch = false;
        if (is_writing_) {
            can_punch = can_punch_holes(directory);
            warn_damaged(scan, "set aside in damaged/");
            clean_directory(directory, scan, can_punch);
        } else {
            log.warning(fmt::format("{}: cannot be written; conversations on disk are read only, none is added", directory));
            warn_damaged(scan, "ignored");
        }
        const uint64_t page_bytes = memory_.shape().page_bytes();
        index_.emplace(options_.identity, page_bytes, memory_.shape().state_bytes(), can_punch);
        const std::string difference = index_->load(scan);
        if (index_->totals().ignored > 0) {
            log.info(fmt::format("{}: {} stored snapshots are not usable here and ignored: {}", directory,
                                 index_->totals().ignored, difference.empty() ? "another version of the format" : difference));
        }
        const int64_t free_bytes = static_cast<int64_t>(std::min<uint64_t>(free_disk_bytes(directory), INT64_MAX / 16));
        bytes_max_ = std::min(options_.bytes_max, index_->bytes() + free_bytes / 10 * kFreeShareTenths);
        if (is_writing_) {
            while (index_->bytes() > bytes_max_) {
                const auto removal = index_->evict_one(bytes_max_);
                if (!removal) break;
                carry_out(directory, lock_, *removal);
            }
        }
        writer_ = std::make_unique<DiskWriter>(directory, lock_, scan);
        return {};
    }

    ~Impl() {
        writer_.reset();  // it reads what the timelines hold
    }

    int32_t find_longest(std::span<const TokenId> prompt, const CacheKey& key) const {
        const DiskIndex::Entry* entry = find(prompt, key);
        return entry == nullptr ? 0 : entry->length;
    }

    bool has(std::span<const TokenId> tokens, const CacheKey& key) const {
        return !secret_.empty() && index_->find_exact(tokens, hashed(key)) != nullptr;
    }

    Result<std::optional<Restored>> restore_longest(std::span<const TokenId> prompt, const CacheKey& key,
                                                    int32_t context_tokens) {
        while (const DiskIndex::Entry* entry = find(prompt, key)) {
            if (const auto waiting = pending_.find(entry->id); waiting != pending_.end()) {
                TRY(check_context(entry->length, context_tokens));
                touch_way(index_->tokens(*entry), hashed(key));
                return std::optional(Restored{waiting->second.fork(context_tokens), entry->kind, true});
            }
            TRY(check_context(entry->length, context_tokens));
            TRY(check_room(entry->length));
            std::optional<uint32_t> damaged_record;
            auto sequence = read_entry(memory_, request_for(*entry, prompt, key, context_tokens), damaged_record);
            if (sequence) {
                touch_way(index_->tokens(*entry), hashed(key));
                return std::optional(Restored{std::move(*sequence), entry->kind, false});
            }
            prompt = after_failure(*entry, damaged_record, sequence.error(), prompt);
        }
        return std::optional<Restored>();
    }

    int32_t check_longest(std::span<const TokenId> prompt, const CacheKey& key) {
        while (const DiskIndex::Entry* entry = find(prompt, key)) {
            std::optional<uint32_t> damaged_record;
            const bool is_waiting = pending_.contains(entry->id);
            const Status status =
                is_waiting ? Status() : check_entry(memory_.shape(), request_for(*entry, prompt, key, 0), damaged_record);
            if (status) return entry->length;
            prompt = after_failure(*entry, damaged_record, status.error(), prompt);
        }
        return 0;
    }

    int64_t waiting_bytes() const {
        std::map<int32_t, int32_t> pages;
        std::map<int32_t, int32_t> states;
        for (const auto& [id, timeline] : pending_) {
            ++states[timeline.state()];
            for (int32_t index = 0; index < timeline.n_pages(); ++index) ++pages[timeline.page(index)];
        }
        const auto held_by_these = [](const SlotPool& pool, const std::map<int32_t, int32_t>& counts) {
            int64_t bytes = 0;
            for (const auto& [slot, n] : counts)
                bytes += pool.references(slot) == n ? static_cast<int64_t>(pool.slot_bytes()) : 0;
            return bytes;
        };
        return held_by_these(memory_.pages(), pages) + held_by_these(memory_.states(), states);
    }

    Kept keep(Sequence timeline, const CacheKey& key, PointKind kind) {
        if (!is_writing_) return Kept::off;
        if (timeline.length() == 0) return Kept::already_there;
        const DiskKey hash = hashed(key);
        if (const DiskIndex::Entry* entry = index_->find_exact(timeline.tokens(), hash)) {
            touch_way(index_->tokens(*entry), hash);
            return Kept::already_there;
        }
        if (static_cast<int32_t>(pending_.size()) >= options_.writes_pending_max) return Kept::queue_full;
        DiskIndex::Plan plan = index_->plan(timeline.tokens(), timeline.mtp_length(), hash);
        DiskWrite write = describe(timeline, hash, plan);
        write.front.kind = kind;
        const auto state_file_bytes = static_cast<int64_t>(write.front.file_bytes());
        if (plan.bytes_whole + state_file_bytes > bytes_max_) return Kept::too_large;
        if (index_->pending_bytes() + plan.bytes_whole + state_file_bytes > bytes_max_) return Kept::queue_full;
        index_->add(write.entry, timeline.tokens(), hash, plan, state_file_bytes, write.modified_ns, kind);
        touch_way(timeline.tokens(), hash);
        while (const auto id = index_->find_superfluous(write.entry, options_.states_per_conversation_max))
            writer_->remove(index_->remove(*id));
        while (index_->bytes() > bytes_max_) {
            auto removal = index_->evict_one(bytes_max_);
            if (!removal) break;
            writer_->remove(std::move(*removal));
        }
        pending_.emplace(write.entry, std::move(timeline));
        writer_->write(std::move(write));
        return Kept::queued;
    }

    int32_t collect_finished() {
        const std::vector<DiskWriteEnd> ended = writer_->take_ended();
        for (const DiskWriteEnd& end : ended) {
            pending_.erase(end.entry);
            if (end.status) {
                index_->set_written(end.entry);
                gauges_.writes_finished += 1;
                gauges_.page_bytes_written += end.page_bytes;
                gauges_.state_bytes_written += end.state_bytes;
                continue;
            }
            if (is_writing_) {
                options_.log.warning(
                    fmt::format("conversations are no longer kept on disk: {}; free some space and restart to go on",
                                end.status.error().message));
            }
            is_writing_ = false;
            writer_->remove(index_->remove(end.entry));
        }
        return static_cast<int32_t>(ended.size());
    }

    int32_t drop_pending() {
        const std::vector<uint64_t> dropped = writer_->drop_waiting();
        for (const uint64_t id : dropped) {
            pending_.erase(id);
            writer_->remove(index_->remove(id));
        }
        return static_cast<int32_t>(dropped.size());
    }

    void flush() {
        writer_->wait_until_idle();
        collect_finished();
        writer_->wait_until_idle();  // removals that this brought
    }

    void set_on_finished(std::function<void()> on_finished) { writer_->set_on_ended(std::move(on_finished)); }

    Gauges gauges() const {
        Gauges gauges = gauges_;
        const DiskIndex::Totals& totals = index_->totals();
        gauges.bytes = totals.bytes;
        gauges.bytes_max = bytes_max_;
        gauges.conversations = totals.conversations;
        gauges.entries = totals.entries;
        gauges.entries_ignored = totals.ignored;
        gauges.writes_pending = static_cast<int32_t>(pending_.size());
        gauges.is_writing = is_writing_;
        return gauges;
    }

private:
    DiskKey hashed(const CacheKey& key) const { return hash_key(key.owner, key.salt, std::as_bytes(std::span(secret_))); }

    const DiskIndex::Entry* find(std::span<const TokenId> prompt, const CacheKey& key) const {
        return secret_.empty() ? nullptr : index_->find(prompt, hashed(key));
    }

    // Later than any before, whatever the clock does.
    int64_t next_stamp() {
        stamp_ns_ = std::max(unix_now_ns(), stamp_ns_ + 1);
        return stamp_ns_;
    }

    void touch(const DiskIndex::Entry& entry) {
        const int64_t stamp = next_stamp();
        if (is_writing_ && !entry.is_pending)
            set_modified(options_.directory + "/" + state_file_name(entry.conversation, entry.id), stamp);
        index_->set_used(entry.id, stamp);
    }

    void warn_damaged(const DirectoryScan& scan, const char* what_is_done) {
        if (scan.damaged.empty()) return;
        gauges_.entries_damaged += static_cast<int32_t>(scan.damaged.size());
        options_.log.warning(fmt::format("{} damaged files of stored conversations are {}, the first: {}", scan.damaged.size(),
                                         what_is_done, scan.damaged.front().message));
    }

    DiskWrite describe(const Sequence& timeline, const DiskKey& hash, const DiskIndex::Plan& plan) {
        DiskWrite write;
        write.entry = random_id();
        write.modified_ns = next_stamp();
        write.front.identity = options_.identity;
        write.front.key = hash;
        write.front.conversation = plan.conversation;
        write.front.page_bytes = memory_.shape().page_bytes();
        write.front.state_bytes = memory_.shape().state_bytes();
        write.front.created_unix_ms = write.modified_ns / 1'000'000;
        write.front.mtp_length = static_cast<uint32_t>(timeline.mtp_length());
        write.front.pages = plan.pages;
        write.front.tokens.assign(timeline.tokens().begin(), timeline.tokens().end());
        write.state = memory_.states().data(timeline.state());
        for (size_t index = 0; index < plan.pages.size(); ++index) {
            const bool is_stored = plan.pages[index].record != kInlineRecord && !plan.is_new[index];
            write.pages.push_back(is_stored ? nullptr : memory_.pages().data(timeline.page(static_cast<int32_t>(index))));
        }
        return write;
    }

    DiskReadRequest request_for(const DiskIndex::Entry& entry, std::span<const TokenId> prompt, const CacheKey& key,
                                int32_t context_tokens) const {
        return {options_.directory, entry.conversation, entry.id,
                &options_.identity, hashed(key),        prompt.first(static_cast<size_t>(entry.length)),
                context_tokens};
    }

    // The prompt to look for after an entry could not be read.
    std::span<const TokenId> after_failure(const DiskIndex::Entry& entry, std::optional<uint32_t> damaged_record,
                                           const Error& error, std::span<const TokenId> prompt) {
        if (is_passing_trouble(entry, error)) {
            warn_once(error);
            return prompt.first(static_cast<size_t>(entry.length) - 1);
        }
        drop_damaged(entry, damaged_record, error);
        return prompt;
    }

    // What is continued from needs everything it began with: none of these may age out before it.
    void touch_way(std::span<const TokenId> tokens, const DiskKey& key) {
        for (const DiskIndex::Entry* entry : index_->find_prefixes(tokens, key)) touch(*entry);
    }

    // Too many open files, no rights, a bad cable: says nothing about the bytes. A file that is gone is gone.
    bool is_passing_trouble(const DiskIndex::Entry& entry, const Error& error) const {
        if (error.code != ErrorCode::invalid_input && error.code != ErrorCode::exhausted) return false;
        const std::string names[] = {state_file_name(entry.conversation, entry.id), pages_file_name(entry.conversation)};
        return std::none_of(std::begin(names), std::end(names), [this](const std::string& name) {
            return ::access((options_.directory + "/" + name).c_str(), F_OK) != 0 && errno == ENOENT;
        });
    }

    void warn_once(const Error& error) {
        if (!has_warned_)
            options_.log.warning(fmt::format("a stored conversation cannot be read now and is left alone: {}", error.message));
        has_warned_ = true;
    }

    static Status check_context(int32_t length, int32_t context_tokens) {
        if (length <= context_tokens) return {};
        return exhausted(fmt::format("a stored conversation of {} tokens exceeds the context of {}", length, context_tokens));
    }

    Status check_room(int32_t length) const {
        const int32_t n_pages = (length + kPageTokens - 1) / kPageTokens;
        if (memory_.pages().n_free() >= n_pages && memory_.states().n_free() >= 1) return {};
        return exhausted(fmt::format("a stored conversation needs {} KV pages and a state, {} and {} are free", n_pages,
                                     memory_.pages().n_free(), memory_.states().n_free()));
    }

    // Damage in a shared page is everybody's who needs it: one warning for all of them.
    void drop_damaged(const DiskIndex::Entry& entry, std::optional<uint32_t> record, const Error& error) {
        const uint64_t conversation = entry.conversation;
        std::vector<uint64_t> ids{entry.id};
        if (record) ids = index_->entries_with_record(conversation, *record);
        if (std::find(ids.begin(), ids.end(), entry.id) == ids.end()) ids.push_back(entry.id);
        std::erase_if(ids, [this](uint64_t id) { return pending_.contains(id); });
        options_.log.warning(fmt::format("{} stored snapshots are damaged and {}: {}", ids.size(),
                                         is_writing_ ? "set aside in damaged/" : "ignored", error.message));
        for (const uint64_t id : ids) {
            const std::string name = state_file_name(conversation, id);
            DiskRemoval removal = index_->remove(id);
            gauges_.entries_damaged += 1;
            if (!is_writing_) continue;
            DirectoryFile file{fmt::format("{}/{}", kDamagedDirectory, name), 0, next_stamp()};
            if (auto open = DiskFile::open(options_.directory + "/" + name, DiskFile::Mode::read)) {
                if (auto bytes = open->size()) file.bytes = *bytes;
            }
            if (move_aside(options_.directory, name)) index_->add_set_aside(std::move(file));
            writer_->remove(std::move(removal));
        }
    }

    Options options_;
    Memory& memory_;
    DirectoryLock lock_;
    bool is_writing_;
    bool has_warned_ = false;  // of passing trouble
    std::string secret_;
    int64_t bytes_max_ = 0;
    int64_t stamp_ns_ = 0;
    std::optional<DiskIndex> index_;
    std::map<uint64_t, Sequence> pending_;  // entry to what the writer reads
    std::unique_ptr<DiskWriter> writer_;
    Gauges gauges_;  // the counters
};

DiskStore::DiskStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DiskStore::~DiskStore() = default;

Result<std::unique_ptr<DiskStore>> DiskStore::open(const Options& options, Memory& memory) {
    const FileSizeSignalBlock no_signal;
    TRY(make_private_directory(options.directory));
    TRY_ASSIGN(DirectoryLock lock, DirectoryLock::acquire(options.directory, options.durability));
    auto impl = std::make_unique<Impl>(options, memory, std::move(lock));
    TRY(impl->start());
    return std::unique_ptr<DiskStore>(new DiskStore(std::move(impl)));
}

int32_t DiskStore::find_longest(std::span<const TokenId> prompt, const CacheKey& key) const {
    return impl_->find_longest(prompt, key);
}

bool DiskStore::has(std::span<const TokenId> tokens, const CacheKey& key) const {
    return impl_->has(tokens, key);
}

Result<std::optional<DiskStore::Restored>> DiskStore::restore_longest(std::span<const TokenId> prompt, const CacheKey& key,
                                                                      int32_t context_tokens) {
    return impl_->restore_longest(prompt, key, context_tokens);
}

int32_t DiskStore::check_longest(std::span<const TokenId> prompt, const CacheKey& key) {
    return impl_->check_longest(prompt, key);
}

int64_t DiskStore::waiting_bytes() const {
    return impl_->waiting_bytes();
}

DiskStore::Kept DiskStore::keep(Sequence timeline, const CacheKey& key, PointKind kind) {
    return impl_->keep(std::move(timeline), key, kind);
}

int32_t DiskStore::collect_finished() {
    return impl_->collect_finished();
}

int32_t DiskStore::drop_pending() {
    return impl_->drop_pending();
}

void DiskStore::flush() {
    impl_->flush();
}

void DiskStore::set_on_finished(std::function<void()> on_finished) {
    impl_->set_on_finished(std::move(on_finished));
}

DiskStore::Gauges DiskStore::gauges() const {
    return impl_->gauges();
}

}  // namespace espalier::cache
