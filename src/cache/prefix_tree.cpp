#include "cache/prefix_tree.h"

#include <algorithm>
#include <unordered_map>

#include "base/check.h"

namespace espalier::cache {

struct PrefixTree::Node {
    // What a snapshot holds: a reference to each page and to the state.
    struct Kept {
        std::vector<int32_t> pages;
        int32_t state = -1;
        int32_t mtp_length = 0;
        PointKind kind = PointKind::ladder;
        bool is_stored = false;
    };

    Node* parent = nullptr;  // null: the root's own node
    Root* root = nullptr;
    std::vector<TokenId> run;
    std::map<TokenId, std::unique_ptr<Node>> children;  // by the first id of their run
    int32_t end = 0;                                    // ids from the root to the end of the run
    int64_t last_used_ms = 0;
    uint64_t serial = 0;  // order of making
    Mark mark = Mark::none;
    std::optional<Kept> kept;

    bool is_bare_leaf() const { return parent != nullptr && !kept && children.empty(); }
};

struct PrefixTree::Root {
    CacheKey key;
    Node node;
};

namespace {

// A node of the map and its allocation, about.
constexpr int64_t kNodeOverhead = 64;

int64_t run_bytes(size_t n_ids) {
    return static_cast<int64_t>(n_ids * sizeof(TokenId));
}

}  // namespace

PrefixTree::PrefixTree(Memory& memory, int64_t index_bytes_max)
    : memory_(memory), index_bytes_max_(index_bytes_max), page_holders_(static_cast<size_t>(memory.pages().n_slots()), 0) {}

PrefixTree::~PrefixTree() {
    while (!kept_.empty()) let_go(**kept_.begin());
    // Children are taken apart one by one: a chain of nodes must not become a chain of destructor calls.
    for (auto& [key, root] : roots_) {
        std::vector<std::unique_ptr<Node>> open;
        const auto open_children = [&open](Node& node) {
            for (auto& [id, child] : node.children) open.push_back(std::move(child));
            node.children.clear();
        };
        open_children(root->node);
        while (!open.empty()) {
            const std::unique_ptr<Node> node = std::move(open.back());
            open.pop_back();
            open_children(*node);
        }
    }
}

PrefixTree::Walk PrefixTree::walk(const CacheKey& key, std::span<const TokenId> ids) const {
    const auto root = roots_.find(key);
    if (root == roots_.end()) return {};
    Walk walk{&root->second->node, 0};
    while (walk.matched < static_cast<int32_t>(ids.size())) {
        const auto child = walk.node->children.find(ids[static_cast<size_t>(walk.matched)]);
        if (child == walk.node->children.end()) break;
        walk.node = child->second.get();
        const std::span<const TokenId> left = ids.subspan(static_cast<size_t>(walk.matched));
        const auto& run = walk.node->run;
        const size_t n = std::min(run.size(), left.size());
        const auto differs = std::mismatch(run.begin(), run.begin() + static_cast<std::ptrdiff_t>(n), left.begin()).first;
        walk.matched += static_cast<int32_t>(differs - run.begin());
        if (walk.matched < walk.node->end) break;
    }
    return walk;
}

PrefixTree::Match PrefixTree::match(const CacheKey& key, std::span<const TokenId> prompt) const {
    Match match;
    const Walk found = walk(key, prompt);
    if (found.node == nullptr) return match;
    match.known = found.matched;
    int32_t echo = 0;
    for (const Node* node = found.node; node != nullptr; node = node->parent) {
        if (node->end > found.matched) continue;  // the prompt leaves inside this run
        if (node->mark == Mark::reply_end && echo == 0) echo = node->end;
        if (!node->kept) continue;
        match.node = node;
        match.cached = node->end;
        break;
    }
    match.has_echo = echo > 0 && echo >= match.cached;
    // Where the timeline goes on: the rest of the run, then each time the child used last.
    match.deepest = match.known;
    const Node* node = found.node;
    auto offset = static_cast<size_t>(static_cast<int32_t>(node->run.size()) - (node->end - found.matched));
    while (true) {
        for (; offset < node->run.size() && match.goes_on.size() < kGoesOnTokens; ++offset)
            match.goes_on.push_back(node->run[offset]);
        if (node->mark == Mark::prompt_end) match.deepest = std::max(match.deepest, node->end);
        if (node->children.empty()) break;
        const auto newest = std::max_element(node->children.begin(), node->children.end(), [](const auto& a, const auto& b) {
            return std::tie(a.second->last_used_ms, a.second->serial) < std::tie(b.second->last_used_ms, b.second->serial);
        });
        node = newest->second.get();
        offset = 0;
    }
    return match;
}

Sequence PrefixTree::fork(const Node& node, int32_t context_tokens) const {
    CHECK(node.kept.has_value(), "only a snapshot can be gone on from");
    for (const int32_t page : node.kept->pages) memory_.pages().retain(page);
    memory_.states().retain(node.kept->state);
    const std::vector<TokenId> tokens = ids(node);
    return Sequence::assemble(memory_, {tokens, node.kept->pages, node.kept->state, node.kept->mtp_length, context_tokens});
}

void PrefixTree::touch(const CacheKey& key, std::span<const TokenId> prompt, int64_t now_ms) {
    const Walk found = walk(key, prompt);
    for (Node* node = found.node; node != nullptr; node = node->parent) {
        if (node->end <= found.matched) node->last_used_ms = now_ms;
    }
}

PrefixTree::Node& PrefixTree::split(Node& node, int32_t at) {
    const auto n_upper = static_cast<std::ptrdiff_t>(static_cast<int32_t>(node.run.size()) - (node.end - at));
    std::unique_ptr<Node>& place = node.parent->children.at(node.run.front());
    auto upper = std::make_unique<Node>();
    upper->parent = node.parent;
    upper->root = node.root;
    upper->run.assign(node.run.begin(), node.run.begin() + n_upper);
    upper->end = at;
    upper->last_used_ms = node.last_used_ms;
    upper->serial = ++serial_;
    std::unique_ptr<Node> lower = std::move(place);
    lower->run = std::vector<TokenId>(node.run.begin() + n_upper, node.run.end());
    lower->parent = upper.get();
    Node& result = *upper;
    upper->children.emplace(lower->run.front(), std::move(lower));
    place = std::move(upper);
    ++n_nodes_;
    index_bytes_ += static_cast<int64_t>(sizeof(Node)) + kNodeOverhead;
    return result;
}

PrefixTree::Node& PrefixTree::insert(const CacheKey& key, std::span<const TokenId> ids, int64_t now_ms) {
    auto& root = roots_[key];
    if (!root) {
        root = std::make_unique<Root>();
        root->key = key;
        root->node.root = root.get();
        index_bytes_ += static_cast<int64_t>(sizeof(Root) + key.owner.size() + key.salt.size()) + kNodeOverhead;
    }
    Walk found = walk(key, ids);
    if (found.matched < found.node->end) found.node = &split(*found.node, found.matched);
    Node* node = found.node;
    if (found.matched < static_cast<int32_t>(ids.size())) {
        auto leaf = std::make_unique<Node>();
        leaf->parent = node;
        leaf->root = root.get();
        leaf->run.assign(ids.begin() + found.matched, ids.end());
        leaf->end = static_cast<int32_t>(ids.size());
        leaf->serial = ++serial_;
        Node* const parent = node;
        node = leaf.get();
        index_bytes_ += static_cast<int64_t>(sizeof(Node)) + kNodeOverhead + run_bytes(leaf->run.size());
        ++n_nodes_;
        parent->children.emplace(leaf->run.front(), std::move(leaf));
    }
    for (Node* used = node; used != nullptr; used = used->parent) used->last_used_ms = now_ms;
    return *node;
}

void PrefixTree::hold(Node& node, const Sequence& sequence, PointKind kind) {
    Node::Kept kept;
    kept.kind = kind;
    kept.state = sequence.state();
    kept.mtp_length = sequence.mtp_length();
    const int32_t n_pages = (sequence.length() + kPageTokens - 1) / kPageTokens;
    kept.pages.reserve(static_cast<size_t>(n_pages));
    int64_t bytes = static_cast<int64_t>(memory_.states().slot_bytes());
    memory_.states().retain(kept.state);
    for (int32_t index = 0; index < n_pages; ++index) {
        const int32_t page = sequence.page(index);
        memory_.pages().retain(page);
        kept.pages.push_back(page);
        if (page_holders_[static_cast<size_t>(page)]++ == 0) bytes += static_cast<int64_t>(memory_.pages().slot_bytes());
    }
    index_bytes_ += static_cast<int64_t>(kept.pages.size() * sizeof(int32_t));
    owner_bytes_[node.root->key.owner] += bytes;
    node.kept = std::move(kept);
    kept_.insert(&node);
}

void PrefixTree::let_go(Node& node) {
    CHECK(node.kept.has_value(), "only a snapshot can be given up");
    int64_t bytes = static_cast<int64_t>(memory_.states().slot_bytes());
    for (const int32_t page : node.kept->pages) {
        memory_.pages().release(page);
        if (--page_holders_[static_cast<size_t>(page)] == 0) bytes += static_cast<int64_t>(memory_.pages().slot_bytes());
    }
    memory_.states().release(node.kept->state);
    index_bytes_ -= static_cast<int64_t>(node.kept->pages.size() * sizeof(int32_t));
    const auto owner = owner_bytes_.find(node.root->key.owner);
    if ((owner->second -= bytes) == 0) owner_bytes_.erase(owner);
    node.kept.reset();
    kept_.erase(&node);
}

bool PrefixTree::keep(const CacheKey& key, const Sequence& sequence, PointKind kind, int64_t now_ms) {
    CHECK(sequence.length() > 0, "an empty sequence needs no snapshot");
    Node& node = insert(key, sequence.tokens(), now_ms);
    const bool is_new = !node.kept.has_value();
    if (is_new) {
        node.serial = ++serial_;
        hold(node, sequence, kind);
    } else {
        node.kept->kind = std::max(node.kept->kind, kind);
    }
    prune_index();
    return is_new;
}

void PrefixTree::remember(const CacheKey& key, std::span<const TokenId> ids, Mark mark, int64_t now_ms) {
    if (ids.empty()) return;
    insert(key, ids, now_ms).mark = mark;
    prune_index();
}

const PrefixTree::Node* PrefixTree::find(const CacheKey& key, std::span<const TokenId> ids) const {
    const Walk found = walk(key, ids);
    const bool is_there = found.node != nullptr && found.node->kept && found.node->end == static_cast<int32_t>(ids.size()) &&
                          found.matched == found.node->end;
    return is_there ? found.node : nullptr;
}

void PrefixTree::drop(const Node& node) {
    const auto found = kept_.find(const_cast<Node*>(&node));
    CHECK(found != kept_.end(), "a snapshot of this tree");
    Node& own = **found;
    let_go(own);
    tidy(own);
}

// A bare leaf stays as bare ids; a bare node with one child says nothing that the child's run does not.
void PrefixTree::tidy(Node& node) {
    if (node.parent == nullptr || node.kept || node.mark != Mark::none || node.children.size() != 1) return;
    std::unique_ptr<Node> child = std::move(node.children.begin()->second);
    std::unique_ptr<Node>& place = node.parent->children.at(node.run.front());
    std::vector<TokenId> run;
    run.reserve(node.run.size() + child->run.size());
    run.insert(run.end(), node.run.begin(), node.run.end());
    run.insert(run.end(), child->run.begin(), child->run.end());
    child->run = std::move(run);
    child->parent = node.parent;
    place = std::move(child);  // ends `node`
    --n_nodes_;
    index_bytes_ -= static_cast<int64_t>(sizeof(Node)) + kNodeOverhead;
}

void PrefixTree::remove_leaf(Node& node) {
    Node* const parent = node.parent;
    index_bytes_ -= static_cast<int64_t>(sizeof(Node)) + kNodeOverhead + run_bytes(node.run.size());
    --n_nodes_;
    parent->children.erase(node.run.front());
    if (parent->parent != nullptr) return tidy(*parent);
    if (!parent->children.empty()) return;
    const CacheKey key = parent->root->key;
    index_bytes_ -= static_cast<int64_t>(sizeof(Root) + key.owner.size() + key.salt.size()) + kNodeOverhead;
    roots_.erase(key);
}

// Forgets bare leaves, an eighth of the limit at a time so that the search for them is rare.
void PrefixTree::prune_index() {
    if (index_bytes_ <= index_bytes_max_) return;
    const int64_t target = index_bytes_max_ - index_bytes_max_ / 8;
    while (index_bytes_ > target) {
        std::vector<Node*> leaves;
        std::vector<Node*> open;
        for (auto& [key, root] : roots_) open.push_back(&root->node);
        while (!open.empty()) {
            Node* const node = open.back();
            open.pop_back();
            if (node->is_bare_leaf()) leaves.push_back(node);
            for (auto& [id, child] : node->children) open.push_back(child.get());
        }
        if (leaves.empty()) return;
        std::sort(leaves.begin(), leaves.end(), [](const Node* a, const Node* b) {
            return std::tie(a->last_used_ms, a->serial) < std::tie(b->last_used_ms, b->serial);
        });
        // Removing one can join its parent with a sibling, never with another leaf of this list that is still to come: the
        // sibling keeps its address.
        for (Node* leaf : leaves) {
            if (index_bytes_ <= target) return;
            remove_leaf(*leaf);
        }
    }
}

int32_t PrefixTree::length(const Node& node) {
    return node.end;
}

PointKind PrefixTree::kind(const Node& node) {
    return node.kept->kind;
}

const CacheKey& PrefixTree::key(const Node& node) {
    return node.root->key;
}

std::vector<TokenId> PrefixTree::ids(const Node& node) {
    std::vector<TokenId> ids(static_cast<size_t>(node.end));
    for (const Node* part = &node; part->parent != nullptr; part = part->parent)
        std::copy(part->run.begin(), part->run.end(), ids.begin() + (part->end - static_cast<int32_t>(part->run.size())));
    return ids;
}

// 0: owners beyond an equal share of what all hold, or the one who asks if it is at its share. 1: then the one who asks, or those
// beyond. 2: everybody.
int32_t PrefixTree::share_tier(const std::string& owner, const VictimRules& rules) const {
    const auto asking = owner_bytes_.find(rules.owner);
    const int64_t asking_bytes = asking != owner_bytes_.end() ? asking->second : 0;
    const auto n_owners = static_cast<int64_t>(owner_bytes_.size()) + (asking_bytes == 0 ? 1 : 0);
    int64_t total = 0;
    for (const auto& [name, bytes] : owner_bytes_) total += bytes;
    const int64_t share = total / n_owners;
    const bool pays_itself = asking_bytes >= share;
    if (owner == rules.owner) return pays_itself ? 0 : 1;
    if (owner_bytes_.at(owner) > share) return pays_itself ? 1 : 0;
    return 2;
}

std::vector<std::pair<PrefixTree::Node*, KeptFacts>> PrefixTree::facts(int64_t now_ms) const {
    struct Below {
        bool boundary = false;
        bool user = false;
        bool newest = false;  // the next boundary below is the last one
    };
    const auto is_boundary = [](const Node& node) {
        return node.kept && (node.kept->kind == PointKind::tool_boundary || node.kept->kind == PointKind::user_boundary);
    };
    std::unordered_map<const Node*, Below> below;
    for (const Node* node : kept_) {
        if (!is_boundary(*node)) continue;
        const bool is_user = node->kept->kind == PointKind::user_boundary;
        for (const Node* up = node->parent; up != nullptr; up = up->parent) {
            Below& mark = below[up];
            if (mark.boundary && (mark.user || !is_user)) break;
            mark.boundary = true;
            mark.user = mark.user || is_user;
        }
    }
    for (const Node* node : kept_) {
        if (!is_boundary(*node) || below[node].boundary) continue;
        const Node* up = node->parent;
        while (up != nullptr && !is_boundary(*up)) up = up->parent;
        if (up != nullptr) below[up].newest = true;
    }
    std::vector<std::pair<Node*, KeptFacts>> all;
    all.reserve(kept_.size());
    for (Node* node : kept_) {
        const Below& mark = below[node];
        const PointKind kind = node->kept->kind;
        const bool is_superseded = kind == PointKind::user_boundary ? mark.user : mark.boundary;
        all.push_back({node, {kind, is_superseded, mark.newest, now_ms - node->last_used_ms}});
    }
    return all;
}

const PrefixTree::Node* PrefixTree::find_victim(const VictimRules& rules, int64_t now_ms) const {
    std::map<std::string, int32_t> tiers;
    for (const auto& [owner, bytes] : owner_bytes_) tiers[owner] = share_tier(owner, rules);
    const int32_t tier_max = rules.need == Need::must ? 2 : tiers.contains(rules.owner) ? tiers[rules.owner] : 0;
    const Node* victim = nullptr;
    Order best;
    for (const auto& [node, facts] : facts(now_ms)) {
        if (node == rules.spared) continue;
        const Order order{tiers.at(node->root->key.owner), eviction_rank(facts), node->last_used_ms, node->serial};
        if (std::get<0>(order) > tier_max || std::get<1>(order) > rules.rank_max) continue;
        if (victim == nullptr || order < best) {
            victim = node;
            best = order;
        }
    }
    return victim;
}

std::vector<const PrefixTree::Node*> PrefixTree::tails(int64_t now_ms) const {
    std::vector<const Node*> all;
    std::set<const Node*> above_ladder;
    for (const auto& [node, facts] : facts(now_ms)) {
        const bool is_end = !facts.is_superseded && (facts.kind == PointKind::reply_end || facts.kind == PointKind::ladder);
        if (eviction_rank(facts) == kRankProtected || is_end) all.push_back(node);
        if (!is_end || facts.kind != PointKind::ladder) continue;
        for (const Node* up = node->parent; up != nullptr; up = up->parent) above_ladder.insert(up);
    }
    // Of a prefill that was broken off, where it ended.
    std::erase_if(all, [&](const Node* node) { return node->kept->kind == PointKind::ladder && above_ladder.contains(node); });
    std::sort(all.begin(), all.end(), [](const Node* a, const Node* b) {
        return std::tie(a->last_used_ms, a->serial) > std::tie(b->last_used_ms, b->serial);
    });
    return all;
}

bool PrefixTree::is_stored(const Node& node) {
    return node.kept->is_stored;
}

void PrefixTree::set_stored(const Node& node, bool is_stored) {
    const auto found = kept_.find(const_cast<Node*>(&node));
    CHECK(found != kept_.end(), "a snapshot of this tree");
    (*found)->kept->is_stored = is_stored;
}

std::vector<const PrefixTree::Node*> PrefixTree::snapshots() const {
    std::vector<const Node*> all(kept_.begin(), kept_.end());
    std::sort(all.begin(), all.end(), [](const Node* a, const Node* b) {
        return std::tie(a->last_used_ms, a->serial) > std::tie(b->last_used_ms, b->serial);
    });
    return all;
}

PrefixTree::Gauges PrefixTree::gauges() const {
    Gauges gauges;
    gauges.snapshots = static_cast<int32_t>(kept_.size());
    gauges.nodes = n_nodes_;
    gauges.index_bytes = index_bytes_;
    gauges.state_bytes = static_cast<int64_t>(kept_.size() * memory_.states().slot_bytes());
    for (const auto& [owner, bytes] : owner_bytes_) gauges.page_bytes += bytes;
    gauges.page_bytes -= gauges.state_bytes;
    return gauges;
}

int64_t PrefixTree::owner_bytes(const std::string& owner) const {
    const auto found = owner_bytes_.find(owner);
    return found != owner_bytes_.end() ? found->second : 0;
}

}  // namespace espalier::cache
