#include "cache/disk_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace espalier::cache {
namespace {

int32_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b) {
    const size_t n = std::min(a.size(), b.size());
    return static_cast<int32_t>(std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin()).first -
                                a.begin());
}

// A new entry joins a conversation only if it shares this part of its tokens; otherwise a file of its own is worth the copies.
constexpr int32_t kJoinShare = 4;  // a quarter

// Pages as an entry needs them: final ones may be shared, the others are its own (disk_format.h). record is 0 for the former.
std::vector<PageRef> wanted_pages(int32_t length, int32_t mtp_length) {
    std::vector<PageRef> pages(static_cast<size_t>((length + kPageTokens - 1) / kPageTokens));
    for (size_t index = 0; index < pages.size(); ++index) {
        const int32_t begin = static_cast<int32_t>(index) * kPageTokens;
        const int32_t end = begin + kPageTokens;
        const int32_t slots = std::clamp(mtp_length - begin, 0, kPageTokens);
        const bool is_final = length >= end && (slots == 0 || (slots == kPageTokens && length > end));
        pages[index].mtp_slots = static_cast<uint32_t>(slots);
        pages[index].record = is_final ? 0 : kInlineRecord;
    }
    return pages;
}

}  // namespace

std::string DiskIndex::load(const DirectoryScan& scan) {
    totals_.reset();
    std::string first_difference;
    for (const ScannedPages& pages : scan.pages) conversations_[pages.header.conversation].page_bytes = pages.header.page_bytes;
    for (const ScannedState& state : scan.states) {
        const StateFront& front = state.front;
        Conversation& conversation = conversations_[front.conversation];
        std::string difference = front.identity.difference(identity_);
        if (difference.empty() && (front.page_bytes != page_bytes_ || front.state_bytes != state_bytes_))
            difference = fmt::format("pages of {} bytes, here {}", front.page_bytes, page_bytes_);
        if (!difference.empty() && first_difference.empty()) first_difference = difference;
        conversation.key = front.key;
        conversation.page_bytes = front.page_bytes;
        conversation.is_ours = difference.empty() && (conversation.entries.empty() || conversation.is_ours);
        Entry entry;
        entry.id = state.entry;
        entry.state_file_bytes = static_cast<int64_t>(state.file.bytes);
        entry.used_ns = state.file.modified_ns;
        entry.kind = front.kind;
        insert(front.conversation, front.tokens, front.pages, std::move(entry));
    }
    for (const DirectoryFile& file : scan.unknown) strays_.push_back(file);
    for (DirectoryFile file : scan.set_aside) {
        file.name = fmt::format("{}/{}", kDamagedDirectory, file.name);
        strays_.push_back(std::move(file));
    }
    return first_difference;
}

int32_t DiskIndex::branch_for(Conversation& conversation, std::span<const TokenId> tokens) {
    size_t free = conversation.branches.size();
    for (size_t index = 0; index < conversation.branches.size(); ++index) {
        std::vector<TokenId>& branch = conversation.branches[index];
        if (branch.empty()) free = index;
        const auto common = static_cast<size_t>(common_prefix(branch, tokens));
        if (branch.empty() || common < std::min(branch.size(), tokens.size())) continue;
        branch.insert(branch.end(), tokens.begin() + static_cast<std::ptrdiff_t>(common), tokens.end());
        return static_cast<int32_t>(index);
    }
    if (free == conversation.branches.size()) conversation.branches.emplace_back();
    conversation.branches[free].assign(tokens.begin(), tokens.end());
    return static_cast<int32_t>(free);
}

void DiskIndex::insert(uint64_t conversation_id, std::span<const TokenId> tokens, std::span<const PageRef> pages, Entry entry) {
    totals_.reset();
    Conversation& conversation = conversations_[conversation_id];
    entry.conversation = conversation_id;
    entry.length = static_cast<int32_t>(tokens.size());
    entry.branch = branch_for(conversation, tokens);
    for (const PageRef& page : pages) {
        entry.records.push_back(page.record);
        if (page.record == kInlineRecord) continue;
        if (page.record >= conversation.records.size()) conversation.records.resize(page.record + size_t{1});
        Record& record = conversation.records[page.record];
        ++record.references;
        record.mtp_slots = page.mtp_slots;
    }
    conversation_of_[entry.id] = conversation_id;
    conversation.entries.push_back(std::move(entry));
}

const DiskIndex::Entry* DiskIndex::find(std::span<const TokenId> prompt, const DiskKey& key) const {
    const Entry* best = nullptr;
    for (const auto& [id, conversation] : conversations_) {
        if (!conversation.is_ours || conversation.key != key) continue;
        std::vector<int32_t> common;
        for (const std::vector<TokenId>& branch : conversation.branches) common.push_back(common_prefix(branch, prompt));
        for (const Entry& entry : conversation.entries) {
            const bool is_prefix = entry.length <= common[static_cast<size_t>(entry.branch)];
            if (!is_prefix) continue;
            const bool is_better = best == nullptr || entry.length > best->length ||
                                   (entry.length == best->length && entry.is_pending && !best->is_pending);
            if (is_better) best = &entry;
        }
    }
    return best;
}

const DiskIndex::Entry* DiskIndex::find_exact(std::span<const TokenId> tokens, const DiskKey& key) const {
    for (const auto& [id, conversation] : conversations_) {
        if (!conversation.is_ours || conversation.key != key) continue;
        for (const Entry& entry : conversation.entries) {
            if (entry.length != static_cast<int32_t>(tokens.size())) continue;
            if (common_prefix(conversation.branches[static_cast<size_t>(entry.branch)], tokens) == entry.length) return &entry;
        }
    }
    return nullptr;
}

std::span<const TokenId> DiskIndex::tokens(const Entry& entry) const {
    const std::vector<TokenId>& branch = conversations_.at(entry.conversation).branches[static_cast<size_t>(entry.branch)];
    return std::span(branch).first(static_cast<size_t>(entry.length));
}

DiskIndex::Share DiskIndex::find_shared(const Conversation& conversation, std::span<const TokenId> tokens,
                                        std::span<const PageRef> wanted) const {
    Share share;
    share.records.assign(wanted.size(), kInlineRecord);
    for (const Entry& entry : conversation.entries) {
        const int32_t common =
            std::min(entry.length, common_prefix(conversation.branches[static_cast<size_t>(entry.branch)], tokens));
        share.tokens = std::max(share.tokens, common);
        const auto n_common = static_cast<size_t>(common / kPageTokens);
        for (size_t index = 0; index < n_common; ++index) {
            const uint32_t record = entry.records[index];
            if (share.records[index] != kInlineRecord || record == kInlineRecord || wanted[index].record == kInlineRecord)
                continue;
            // Filled MTP slots are the same only if the token after the page is.
            const bool has_slots =
                conversation.records[record].mtp_slots == kPageTokens && common > (static_cast<int32_t>(index) + 1) * kPageTokens;
            if (wanted[index].mtp_slots > 0 && !has_slots) continue;
            share.records[index] = record;
            ++share.n_records;
        }
    }
    return share;
}

DiskIndex::Plan DiskIndex::plan(std::span<const TokenId> tokens, int32_t mtp_length, const DiskKey& key) const {
    Plan plan;
    const auto length = static_cast<int32_t>(tokens.size());
    plan.pages = wanted_pages(length, mtp_length);
    plan.is_new.assign(plan.pages.size(), false);
    Share best;
    best.records.assign(plan.pages.size(), kInlineRecord);
    uint32_t record_next = 0;
    for (const auto& [id, conversation] : conversations_) {
        if (!conversation.is_ours || conversation.key != key || conversation.records.size() > kRecordsMax / 2) continue;
        Share share = find_shared(conversation, tokens, plan.pages);
        if (int64_t{share.tokens} * kJoinShare < length) continue;
        if (std::pair(share.n_records, share.tokens) <= std::pair(best.n_records, best.tokens)) continue;
        best = std::move(share);
        plan.conversation = id;
        record_next = static_cast<uint32_t>(conversation.records.size());
    }
    while (plan.conversation == 0 || (best.tokens == 0 && conversations_.contains(plan.conversation)))
        plan.conversation = random_id();
    const auto stride = static_cast<int64_t>(disk_align(page_bytes_));
    const auto header_bytes = static_cast<int64_t>(kPagesHeaderBytes);
    for (size_t index = 0; index < plan.pages.size(); ++index) {
        PageRef& page = plan.pages[index];
        plan.bytes_whole += stride;
        if (page.record == kInlineRecord) continue;
        plan.is_new[index] = best.records[index] == kInlineRecord;
        if (plan.is_new[index]) {
            page.record = record_next++;
            plan.bytes_new += stride;
        } else {
            // The record may know more than is wanted; it keeps that.
            page.record = best.records[index];
            page.mtp_slots = conversations_.at(plan.conversation).records[page.record].mtp_slots;
        }
    }
    plan.bytes_whole += header_bytes;
    if (best.tokens == 0) plan.bytes_new += header_bytes;
    return plan;
}

void DiskIndex::add(uint64_t id, std::span<const TokenId> tokens, const DiskKey& key, const Plan& plan, int64_t state_file_bytes,
                    int64_t used_ns, PointKind kind) {
    Conversation& conversation = conversations_[plan.conversation];
    conversation.key = key;
    conversation.page_bytes = page_bytes_;
    conversation.is_ours = true;
    Entry entry;
    entry.id = id;
    entry.state_file_bytes = state_file_bytes;
    entry.used_ns = used_ns;
    entry.is_pending = true;
    entry.kind = kind;
    insert(plan.conversation, tokens, plan.pages, std::move(entry));
}

std::vector<const DiskIndex::Entry*> DiskIndex::find_prefixes(std::span<const TokenId> wanted, const DiskKey& key) const {
    std::vector<const Entry*> found;
    for (const auto& [id, conversation] : conversations_) {
        if (!conversation.is_ours || conversation.key != key) continue;
        for (const Entry& entry : conversation.entries) {
            if (common_prefix(tokens(entry), wanted) == entry.length) found.push_back(&entry);
        }
    }
    std::sort(found.begin(), found.end(), [](const Entry* a, const Entry* b) { return a->length > b->length; });
    return found;
}

DiskIndex::Entry& DiskIndex::at(uint64_t id) {
    const auto found = conversation_of_.find(id);
    CHECK(found != conversation_of_.end(), "the entry is in the index");
    for (Entry& entry : conversations_.at(found->second).entries) {
        if (entry.id == id) return entry;
    }
    CHECK(false, "an entry is in its conversation");
}

void DiskIndex::set_written(uint64_t id) {
    at(id).is_pending = false;
}

void DiskIndex::set_used(uint64_t id, int64_t used_ns) {
    at(id).used_ns = used_ns;
}

DiskRemoval DiskIndex::remove(uint64_t id) {
    totals_.reset();
    const Entry entry = at(id);
    Conversation& conversation = conversations_.at(entry.conversation);
    std::erase_if(conversation.entries, [id](const Entry& other) { return other.id == id; });
    conversation_of_.erase(id);
    DiskRemoval removal;
    removal.conversation = entry.conversation;
    removal.files.push_back(state_file_name(entry.conversation, id));
    if (conversation.entries.empty()) {
        removal.is_whole_conversation = true;
        removal.files.push_back(pages_file_name(entry.conversation));
        conversations_.erase(entry.conversation);
        return removal;
    }
    int32_t longest = 0;
    for (const Entry& other : conversation.entries) {
        if (other.branch == entry.branch) longest = std::max(longest, other.length);
    }
    conversation.branches[static_cast<size_t>(entry.branch)].resize(static_cast<size_t>(longest));
    const PagesHeader geometry{entry.conversation, conversation.page_bytes};
    for (const uint32_t record : entry.records) {
        if (record == kInlineRecord || --conversation.records[record].references > 0) continue;
        const uint64_t offset = geometry.record_offset(record);
        if (!removal.holes.empty() && removal.holes.back().first + removal.holes.back().second == offset)
            removal.holes.back().second += geometry.stride();
        else removal.holes.emplace_back(offset, geometry.stride());
    }
    return removal;
}

std::vector<uint64_t> DiskIndex::entries_with_record(uint64_t conversation, uint32_t record) const {
    std::vector<uint64_t> ids;
    for (const Entry& entry : conversations_.at(conversation).entries) {
        if (std::find(entry.records.begin(), entry.records.end(), record) != entry.records.end()) ids.push_back(entry.id);
    }
    return ids;
}

std::optional<DiskRemoval> DiskIndex::evict_one(int64_t bytes_max) {
    const auto oldest = std::min_element(strays_.begin(), strays_.end(), [](const DirectoryFile& a, const DirectoryFile& b) {
        return a.modified_ns < b.modified_ns;
    });
    if (oldest != strays_.end()) {
        DiskRemoval removal;
        removal.files.push_back(oldest->name);
        strays_.erase(oldest);
        totals_.reset();
        return removal;
    }
    std::map<std::array<uint64_t, 2>, int64_t> held;
    for (const auto& [id, conversation] : conversations_) {
        int64_t& bytes = held[conversation.key.owner];
        bytes += pages_file_bytes(conversation);
        for (const Entry& entry : conversation.entries) bytes += entry.state_file_bytes;
    }
    const int64_t share = bytes_max / std::max<int64_t>(1, static_cast<int64_t>(held.size()));
    const Entry* victim = nullptr;
    const Entry* oldest_entry = nullptr;  // when those above their share have only what waits
    for (const auto& [id, conversation] : conversations_) {
        const bool is_above = held[conversation.key.owner] > share;
        for (const Entry& entry : conversation.entries) {
            if (entry.is_pending) continue;
            if (oldest_entry == nullptr || entry.used_ns < oldest_entry->used_ns) oldest_entry = &entry;
            if (is_above && (victim == nullptr || entry.used_ns < victim->used_ns)) victim = &entry;
        }
    }
    if (victim == nullptr) victim = oldest_entry;
    if (victim == nullptr) return std::nullopt;
    return remove(victim->id);
}

std::optional<uint64_t> DiskIndex::find_superfluous(uint64_t id, int32_t entries_max) const {
    const Entry& end = at(id);
    const Conversation& conversation = conversations_.at(end.conversation);
    const std::span<const TokenId> end_tokens = tokens(end);
    std::vector<const Entry*> way;
    std::vector<int32_t> leaves_at;  // how far the others go along
    for (const Entry& entry : conversation.entries) {
        const int32_t common = common_prefix(tokens(entry), end_tokens);
        if (common == entry.length) way.push_back(&entry);
        else leaves_at.push_back(common);
    }
    if (static_cast<int32_t>(way.size()) <= entries_max) return std::nullopt;
    std::sort(way.begin(), way.end(), [](const Entry* a, const Entry* b) { return a->length < b->length; });
    const Entry* kept[3] = {};  // where the next user message, other questions and other conversations continue
    for (const Entry* entry : way) {
        if (entry->kind == PointKind::message_end && kept[0] == nullptr) kept[0] = entry;
        if (entry->kind != PointKind::user_boundary) continue;
        if (kept[1] == nullptr) kept[1] = entry;
        kept[2] = entry;
    }
    const Entry* least = nullptr;
    double least_score = std::numeric_limits<double>::max();
    for (size_t i = 1; i + 2 < way.size(); ++i) {
        const int32_t length = way[i]->length;
        const int32_t next = way[i + 1]->length;
        // The deepest entry before the place where somebody else leaves.
        const bool is_junction =
            std::any_of(leaves_at.begin(), leaves_at.end(), [&](int32_t at) { return at >= length && at < next; });
        if (is_junction || way[i]->is_pending || std::count(std::begin(kept), std::end(kept), way[i]) > 0) continue;
        const double score = static_cast<double>(next - way[i - 1]->length) / (end.length - length);
        if (score < least_score) {
            least_score = score;
            least = way[i];
        }
    }
    if (least == nullptr) return std::nullopt;
    return least->id;
}

int64_t DiskIndex::pages_file_bytes(const Conversation& conversation) const {
    if (conversation.records.empty()) return 0;
    int64_t n_records = static_cast<int64_t>(conversation.records.size());
    if (can_punch_) {
        n_records = std::count_if(conversation.records.begin(), conversation.records.end(),
                                  [](const Record& record) { return record.references > 0; });
    }
    const PagesHeader geometry{0, conversation.page_bytes};
    return static_cast<int64_t>(kPagesHeaderBytes) + n_records * static_cast<int64_t>(geometry.stride());
}

const DiskIndex::Totals& DiskIndex::totals() const {
    if (!totals_) totals_ = count();
    return *totals_;
}

DiskIndex::Totals DiskIndex::count() const {
    Totals totals;
    for (const auto& [id, conversation] : conversations_) {
        const auto n_entries = static_cast<int32_t>(conversation.entries.size());
        totals.conversations += conversation.is_ours ? 1 : 0;
        (conversation.is_ours ? totals.entries : totals.ignored) += n_entries;
        totals.bytes += pages_file_bytes(conversation);
        for (const Entry& entry : conversation.entries) totals.bytes += entry.state_file_bytes;
    }
    for (const DirectoryFile& stray : strays_) {
        totals.bytes += static_cast<int64_t>(stray.bytes);
        totals.ignored += parse_file_name(stray.name).kind == DiskFileName::Kind::state ? 1 : 0;
    }
    return totals;
}

int64_t DiskIndex::pending_bytes() const {
    int64_t bytes = 0;
    for (const auto& [id, conversation] : conversations_) {
        const PagesHeader geometry{id, conversation.page_bytes};
        for (const Entry& entry : conversation.entries) {
            if (!entry.is_pending) continue;
            bytes += entry.state_file_bytes + static_cast<int64_t>(entry.records.size() * geometry.stride());
        }
    }
    return bytes;
}

}  // namespace espalier::cache
