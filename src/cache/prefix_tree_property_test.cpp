// Random use of the conversation cache and its disk store against a plain model: a list of snapshots, searched and ranked the
// obvious way, and a list of what was written. After every operation both must keep the same snapshots, a prompt must hit exactly
// the longest one that is its prefix, in memory or on disk, what is restored must hold what its tokens give, and nothing may
// exceed the budget. The program restarts, with and without the time to write first. A failing run is shrunk to the few
// operations that matter.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <set>

#include "cache/conversation_cache.h"
#include "cache/test_timeline.h"

namespace espalier::cache {
namespace {

using Tokens = std::vector<TokenId>;

// One operation; numbers are reduced to what exists when it runs, so that any list of them can run.
struct Op {
    enum class Kind {
        talk,
        turn,
        question,
        branch,
        retry,
        edit_back,
        evict,
        other_owner,
        broken_off,
        pass_time,
        idle,     // what is worth it is written
        restart,  // the same, and memory is empty afterwards
        kill      // memory is empty
    };
    Kind kind = Kind::talk;
    uint32_t a = 0;
    uint32_t b = 0;
};
constexpr int kOpKinds = 13;

bool starts_with(const Tokens& tokens, std::span<const TokenId> prefix) {
    return tokens.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), tokens.begin());
}

struct ModelSnapshot {
    CacheKey key;
    Tokens ids;
    PointKind kind;
    int64_t last_used;
    uint64_t serial;
    std::vector<int32_t> pages;

    bool is_boundary() const { return kind == PointKind::tool_boundary || kind == PointKind::user_boundary; }
    bool is_below(const ModelSnapshot& other) const {
        return key == other.key && ids.size() > other.ids.size() && starts_with(ids, other.ids);
    }
};

class Model {
public:
    Model(int64_t page_bytes, int64_t state_bytes, int64_t bytes_max, int32_t snapshots_max)
        : page_bytes_(page_bytes), state_bytes_(state_bytes), bytes_max_(bytes_max), snapshots_max_(snapshots_max) {}

    int32_t longest(const CacheKey& key, const Tokens& prompt) const {
        size_t best = 0;
        for (const ModelSnapshot& s : all) {
            if (s.key == key && starts_with(prompt, s.ids)) best = std::max(best, s.ids.size());
        }
        return static_cast<int32_t>(best);
    }
    void use(const CacheKey& key, const Tokens& prompt) {
        for (ModelSnapshot& s : all) {
            if (s.key == key && starts_with(prompt, s.ids)) s.last_used = now;
        }
    }
    bool make_room(int64_t bytes, const std::string& owner, bool is_must, int32_t rank_max, const Tokens* spared,
                   const CacheKey& spared_key, const std::vector<int32_t>& running_pages) {
        while (used(running_pages) + bytes > bytes_max_) {
            if (!drop_one(owner, is_must, rank_max, spared, spared_key)) return false;
        }
        return true;
    }
    void keep(const CacheKey& key, const Sequence& sequence, PointKind kind, int32_t rank_max) {
        const Tokens ids(sequence.tokens().begin(), sequence.tokens().end());
        std::vector<int32_t> pages;
        for (int32_t i = 0; i < sequence.n_pages(); ++i) pages.push_back(sequence.page(i));
        for (ModelSnapshot& s : all) {
            if (s.key != key || s.ids != ids) continue;
            s.kind = std::max(s.kind, kind);
            return use(key, ids);
        }
        while (static_cast<int32_t>(all.size()) >= snapshots_max_) {
            if (!drop_one(key.owner, false, rank_max, nullptr, key)) return;
        }
        const auto bytes = state_bytes_ + page_bytes_ + static_cast<int64_t>(ids.size() * sizeof(TokenId));
        if (!make_room(bytes, key.owner, false, rank_max, nullptr, key, pages)) return;
        pages.resize((ids.size() + kPageTokens - 1) / kPageTokens);
        all.push_back({key, ids, kind, now, ++serial_, pages});
        use(key, ids);
    }
    int64_t bytes_of(const std::string& owner) const {
        std::set<int32_t> pages;
        int64_t states = 0;
        for (const ModelSnapshot& s : all) {
            if (s.key.owner != owner) continue;
            pages.insert(s.pages.begin(), s.pages.end());
            ++states;
        }
        return static_cast<int64_t>(pages.size()) * page_bytes_ + states * state_bytes_;
    }

    // The longest one written before that is a prefix; its kind is what it was then.
    std::pair<int32_t, PointKind> longest_on_disk(const CacheKey& key, const Tokens& prompt) const {
        std::pair<int32_t, PointKind> best{0, PointKind::ladder};
        for (const auto& [whose, kind] : disk) {
            const auto& [owner, ids] = whose;
            if (owner == key && starts_with(prompt, ids)) best = std::max(best, {static_cast<int32_t>(ids.size()), kind});
        }
        return best;
    }
    // What a later request may want: the highest rank, and the ends of prefills that were broken off.
    void write() {
        for (const ModelSnapshot& s : all) {
            const bool is_end = is_broken_end(s) && std::none_of(all.begin(), all.end(), [&](const ModelSnapshot& t) {
                                    return t.is_below(s) && is_broken_end(t);
                                });
            if (rank(s) == kRankProtected || is_end) disk.emplace(std::pair(s.key, s.ids), s.kind);
        }
    }

    std::vector<ModelSnapshot> all;
    std::map<std::pair<CacheKey, Tokens>, PointKind> disk;
    int64_t now = 0;

private:
    int64_t used(const std::vector<int32_t>& running_pages) const {
        std::set<int32_t> pages(running_pages.begin(), running_pages.end());
        for (const ModelSnapshot& s : all) pages.insert(s.pages.begin(), s.pages.end());
        return static_cast<int64_t>(pages.size()) * page_bytes_ + static_cast<int64_t>(all.size()) * state_bytes_;
    }
    bool is_broken_end(const ModelSnapshot& s) const {
        return s.kind == PointKind::ladder &&
               std::none_of(all.begin(), all.end(), [&](const ModelSnapshot& t) { return t.is_boundary() && t.is_below(s); });
    }
    int32_t rank(const ModelSnapshot& s) const {
        bool is_superseded = false;
        bool is_parent = false;
        std::vector<const ModelSnapshot*> boundaries;
        for (const ModelSnapshot& t : all) {
            if (t.is_boundary() && t.key == s.key) boundaries.push_back(&t);
        }
        for (const ModelSnapshot* below : boundaries) {
            const ModelSnapshot& t = *below;
            if (!t.is_below(s)) continue;
            if (s.kind != PointKind::user_boundary || t.kind == PointKind::user_boundary) is_superseded = true;
            bool is_next = true;
            bool is_last = true;
            for (const ModelSnapshot* other : boundaries) {
                const ModelSnapshot& u = *other;
                is_next = is_next && !(u.is_below(s) && t.is_below(u));
                is_last = is_last && !u.is_below(t);
            }
            is_parent = is_parent || (is_next && is_last);
        }
        return eviction_rank({s.kind, is_superseded, s.is_boundary() && is_parent, now - s.last_used});
    }
    int32_t tier(const std::string& owner, const std::string& asking) const {
        std::set<std::string> owners{asking};
        for (const ModelSnapshot& s : all) owners.insert(s.key.owner);
        int64_t total = 0;
        for (const std::string& name : owners) total += bytes_of(name);
        const int64_t share = total / static_cast<int64_t>(owners.size());
        const bool pays_itself = bytes_of(asking) >= share;
        if (owner == asking) return pays_itself ? 0 : 1;
        if (bytes_of(owner) > share) return pays_itself ? 1 : 0;
        return 2;
    }
    bool drop_one(const std::string& owner, bool is_must, int32_t rank_max, const Tokens* spared, const CacheKey& spared_key) {
        const int32_t tier_max = is_must ? 2 : bytes_of(owner) > 0 ? tier(owner, owner) : 0;
        std::map<std::string, int32_t> tiers;
        for (const ModelSnapshot& s : all) {
            if (!tiers.contains(s.key.owner)) tiers[s.key.owner] = tier(s.key.owner, owner);
        }
        auto victim = all.end();
        std::tuple<int32_t, int32_t, int64_t, uint64_t> best;
        for (auto s = all.begin(); s != all.end(); ++s) {
            if (spared != nullptr && s->key == spared_key && s->ids == *spared) continue;
            if (tiers[s->key.owner] > tier_max) continue;
            const std::tuple order(tiers[s->key.owner], rank(*s), s->last_used, s->serial);
            if (std::get<1>(order) > rank_max) continue;
            if (victim == all.end() || order < best) {
                victim = s;
                best = order;
            }
        }
        if (victim == all.end()) return false;
        all.erase(victim);
        return true;
    }

    int64_t page_bytes_;
    int64_t state_bytes_;
    int64_t bytes_max_;
    int32_t snapshots_max_;
    uint64_t serial_ = 0;
};

// Both sides and the clients that use them.
class World {
public:
    static constexpr int32_t kPages = 40;
    static constexpr int32_t kSnapshotsMax = 20;
    static constexpr int32_t kContext = 1024;

    World() : memory_(std::move(*Memory::create(testing::timeline_shape(), {64, 48}))) {
        const auto page = static_cast<int64_t>(memory_.pages().slot_bytes());
        const auto state = static_cast<int64_t>(memory_.states().slot_bytes());
        const int64_t content = kPages * page + 6 * state;
        bytes_max_ = content + index_bytes_max(content);
        model_ = std::make_unique<Model>(page, state, content, kSnapshotsMax);
        std::string name = (std::filesystem::temp_directory_path() / "espalier_property_XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
        start();
    }
    ~World() {
        cache_.reset();
        std::filesystem::remove_all(folder_);
    }
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    // What went wrong, empty if nothing.
    std::string apply(const Op& op) {
        ++model_->now;
        error_.clear();
        run(op);
        if (error_.empty()) compare();
        return error_;
    }

    int32_t n_reads() const { return n_reads_; }

private:
    struct Talk {
        CacheKey key;
        Tokens ids;
        int32_t user_boundary = 0;
        Tokens other;  // what it was before an edit
    };

    void start() {
        cache_.reset();
        DiskStore::Options options;
        options.directory = folder_;
        options.identity.model_hash = "m";
        options.bytes_max = int64_t{256} << 20;
        options.states_per_conversation_max = 10'000;  // thinning has its own tests
        options.durability = Durability::kill;
        auto store = DiskStore::open(options, memory_);
        if (!store) {
            error_ = store.error().message;
            return;
        }
        cache_ = std::make_unique<ConversationCache>(
            memory_, ConversationCache::Options{bytes_max_, kSnapshotsMax, [this] { return model_->now; }, *std::move(store)});
        cache_->set_ms_per_token(1e9);  // reading is always faster
    }

    void run(const Op& op) {
        using Kind = Op::Kind;
        if (op.kind == Kind::talk || talks_.empty()) {
            // Few different beginnings, so that conversations share them.
            Talk talk{
                {fmt::format("owner{}", op.a % 3), op.a % 5 == 0 ? "salt" : ""}, tokens(op.b % 4, 20 + op.b % 4 * 30), 0, {}};
            extend(talk.ids, op.a, 5 + op.b % 40);
            talks_.push_back(std::move(talk));
            if (talks_.size() > 12) talks_.erase(talks_.begin());
            return request(talks_.back(), true);
        }
        Talk& talk = talks_[op.a % talks_.size()];
        switch (op.kind) {
            case Kind::talk: break;
            case Kind::turn:
            case Kind::question:
                extend(talk.ids, op.b, 3 + op.b % 90);
                request(talk, op.kind == Kind::question);
                break;
            case Kind::branch: {
                Talk other = talk;
                other.ids.resize(1 + op.b % other.ids.size());
                extend(other.ids, op.b, 4 + op.b % 30);
                talks_.push_back(other);
                request(talks_.back(), false);
                break;
            }
            case Kind::retry: request(talk, false); break;
            case Kind::edit_back:
                if (talk.other.empty()) {
                    talk.other = talk.ids;
                    talk.ids.resize(1 + op.b % talk.ids.size());
                    extend(talk.ids, op.b, 10);
                } else {
                    std::swap(talk.ids, talk.other);
                }
                request(talk, false);
                break;
            case Kind::evict: {
                const int64_t pages = op.b % kPages;
                const bool fits = cache_->make_room(pages, talk.key.owner);
                const bool expected =
                    model_->make_room(pages * page_bytes(), talk.key.owner, true, kRankProtected, nullptr, {}, {});
                if (fits != expected) error_ = fmt::format("make_room: {}, expected {}", fits, expected);
                break;
            }
            case Kind::other_owner: {
                Talk stolen = talk;
                stolen.key.owner += "x";
                check_hit(stolen.key, stolen.ids);
                if (cache_->read_back(stolen.key, stolen.ids, 0, kContext)) error_ = "an owner reads what is another's";
                break;
            }
            case Kind::broken_off: {
                extend(talk.ids, op.b, 100);
                prefill(talk, {{static_cast<int32_t>(talk.ids.size()) - 40, PointKind::ladder}});
                break;
            }
            case Kind::pass_time: model_->now += int64_t{op.b % 5} * 1'000'000; break;
            case Kind::idle: write(); break;
            case Kind::restart:
            case Kind::kill:
                if (op.kind == Kind::restart) write();
                start();
                model_->all.clear();
                break;
        }
    }

    void write() {
        cache_->finish_writing(60'000);
        model_->write();
    }

    static Tokens tokens(uint32_t seed, uint32_t n) {
        std::mt19937 random(seed + 77);
        Tokens result(n);
        for (TokenId& id : result) id = static_cast<TokenId>(random() % 5);
        return result;
    }
    static void extend(Tokens& ids, uint32_t seed, uint32_t n) {
        if (ids.size() + n > 500) ids.resize(ids.size() / 2);
        const Tokens more = tokens(seed, n);
        ids.insert(ids.end(), more.begin(), more.end());
    }

    void request(Talk& talk, bool is_question) {
        const auto n = static_cast<int32_t>(talk.ids.size());
        talk.user_boundary = is_question ? n - 2 : std::min(talk.user_boundary, n);
        prefill(talk,
                {{talk.user_boundary, PointKind::user_boundary}, {n - 1, PointKind::tool_boundary}, {n / 2, PointKind::branch}});
    }

    static int32_t rank_max(PointKind kind) {
        return kind == PointKind::ladder ? 1 : kind == PointKind::prompt_end ? 2 : kRankProtected;
    }

    int32_t check_hit(const CacheKey& key, const Tokens& prompt) {
        const int32_t cached = cache_->match(key, prompt).cached;
        const int32_t expected = model_->longest(key, prompt);
        if (cached != expected) error_ = fmt::format("a prompt of {} hits {}, expected {}", prompt.size(), cached, expected);
        return cached;
    }

    // What the engine does with a job.
    void prefill(const Talk& talk, std::vector<Point> points) {
        check_hit(talk.key, talk.ids);
        cache_->set_running(1);
        std::optional<Sequence> sequence = read_back(talk);
        if (!sequence && error_.empty()) sequence = resume(talk);
        if (sequence && error_.empty()) finish_prefill(talk, std::move(points), *sequence);
        sequence.reset();
        cache_->set_running(0);
    }

    std::optional<Sequence> read_back(const Talk& talk) {
        const int32_t cached = cache_->match(talk.key, talk.ids).cached;
        std::optional<Sequence> read = cache_->read_back(talk.key, talk.ids, cached, kContext);
        const auto [length, kind] = model_->longest_on_disk(talk.key, talk.ids);
        if ((length > cached) != read.has_value())
            error_ = fmt::format("{} tokens on disk, {} in memory, and not read", length, cached);
        if (!read || !error_.empty()) return std::nullopt;
        ++n_reads_;
        const Tokens ids(talk.ids.begin(), talk.ids.begin() + length);
        if (!testing::holds(*read, ids)) error_ = "the sequence from disk holds something else";
        if (!model_->make_room(pages_for(length) * page_bytes() + page_bytes(), talk.key.owner, true, kRankProtected, nullptr, {},
                               {}))
            error_ = "there was no room for what was read";
        model_->keep(talk.key, *read, kind, rank_max(kind));
        const int64_t pages = pages_for(static_cast<int32_t>(talk.ids.size())) + 2 - read->n_pages();
        const PrefixTree::Node* spared = cache_->tree().find(talk.key, ids);
        make_room(talk, pages, spared, ids, pages_of(*read));
        return read;
    }

    std::optional<Sequence> resume(const Talk& talk) {
        const auto match = cache_->match(talk.key, talk.ids);
        const int64_t pages = pages_for(static_cast<int32_t>(talk.ids.size())) + 2 - match.cached / kPageTokens;
        const Tokens spared(talk.ids.begin(), talk.ids.begin() + match.cached);
        if (!make_room(talk, pages, match.node, spared, {})) return std::nullopt;
        if (match.node == nullptr) return std::move(*Sequence::create(memory_, kContext));
        Sequence sequence = cache_->resume(talk.key, talk.ids, *match.node, kContext);
        model_->use(talk.key, talk.ids);
        if (!testing::holds(sequence, spared)) error_ = "the restored sequence holds something else";
        return sequence;
    }

    bool make_room(const Talk& talk, int64_t pages, const PrefixTree::Node* spared, const Tokens& spared_ids,
                   const std::vector<int32_t>& running) {
        const bool fits = cache_->make_room(pages, talk.key.owner, spared);
        if (fits != model_->make_room(pages * page_bytes(), talk.key.owner, true, kRankProtected, &spared_ids, talk.key, running))
            error_ = "make_room for a prefill differs";
        return fits;
    }

    static int64_t pages_for(int32_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }
    static std::vector<int32_t> pages_of(const Sequence& sequence) {
        std::vector<int32_t> pages;
        for (int32_t i = 0; i < sequence.n_pages(); ++i) pages.push_back(sequence.page(i));
        return pages;
    }

    void finish_prefill(const Talk& talk, std::vector<Point> points, Sequence& sequence) {
        const Tokens& prompt = talk.ids;
        points.push_back({static_cast<int32_t>(prompt.size()), PointKind::prompt_end});
        std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.length < b.length; });
        for (const Point& point : points) {
            if (point.length <= sequence.length()) continue;
            testing::grow(sequence, std::span(prompt).subspan(static_cast<size_t>(sequence.length()),
                                                              static_cast<size_t>(point.length - sequence.length())));
            model_->keep(talk.key, sequence, point.kind, rank_max(point.kind));
            cache_->keep(talk.key, sequence, point.kind);
        }
        if (!testing::holds(sequence, prompt)) error_ = "the finished sequence holds something else";
        cache_->remember(talk.key, prompt, PrefixTree::Mark::prompt_end);
    }

    void compare() {
        std::set<std::tuple<CacheKey, Tokens, PointKind>> kept;
        std::set<std::tuple<CacheKey, Tokens, PointKind>> expected;
        std::set<int32_t> pages;
        for (const PrefixTree::Node* node : cache_->tree().snapshots())
            kept.emplace(PrefixTree::key(*node), PrefixTree::ids(*node), PrefixTree::kind(*node));
        for (const ModelSnapshot& s : model_->all) {
            expected.emplace(s.key, s.ids, s.kind);
            pages.insert(s.pages.begin(), s.pages.end());
        }
        if (kept != expected)
            error_ = fmt::format("{} snapshots are kept, other ones than the {} expected", kept.size(), expected.size());
        for (int i = 0; i < 3; ++i) {
            const std::string owner = fmt::format("owner{}", i);
            if (cache_->tree().owner_bytes(owner) != model_->bytes_of(owner)) error_ = "an owner's bytes are wrong";
        }
        if (cache_->gauges().used_bytes > bytes_max_) error_ = "the budget is exceeded";
        const auto n_pages = static_cast<size_t>(memory_.pages().n_slots() - memory_.pages().n_free());
        const auto n_states = static_cast<size_t>(memory_.states().n_slots() - memory_.states().n_free());
        if (n_pages != pages.size() || n_states != expected.size()) error_ = "references were lost";
    }

    int64_t page_bytes() const { return static_cast<int64_t>(memory_.pages().slot_bytes()); }

    Memory memory_;
    int64_t bytes_max_ = 0;
    std::string folder_;
    std::unique_ptr<Model> model_;
    std::unique_ptr<ConversationCache> cache_;
    std::vector<Talk> talks_;
    std::string error_;
    int32_t n_reads_ = 0;
};

std::string failure_of(const std::vector<Op>& ops, int32_t* n_reads = nullptr) {
    World world;
    for (size_t i = 0; i < ops.size(); ++i) {
        const std::string error = world.apply(ops[i]);
        if (!error.empty()) return fmt::format("operation {}: {}", i, error);
    }
    if (n_reads != nullptr) *n_reads += world.n_reads();
    return "";
}

// Removes operations, large pieces first, as long as the rest still fails (delta debugging; Zeller and Hildebrandt, 2002).
template <class Fails>
std::vector<Op> shrink(std::vector<Op> ops, const Fails& fails) {
    for (size_t piece = ops.size() / 2; piece > 0; piece /= 2) {
        for (size_t begin = 0; begin < ops.size();) {
            std::vector<Op> fewer(ops.begin(), ops.begin() + static_cast<std::ptrdiff_t>(begin));
            const size_t end = std::min(ops.size(), begin + piece);
            fewer.insert(fewer.end(), ops.begin() + static_cast<std::ptrdiff_t>(end), ops.end());
            if (fails(fewer)) ops = std::move(fewer);
            else begin += piece;
        }
    }
    return ops;
}

std::vector<Op> random_ops(uint32_t seed, size_t n) {
    std::mt19937 random(seed);
    std::vector<Op> ops;
    // Turns are what happens most; a restart is rare.
    constexpr int kWeights[kOpKinds] = {8, 24, 8, 6, 6, 4, 4, 4, 4, 4, 1, 1, 1};
    std::discrete_distribution<int> kind(std::begin(kWeights), std::end(kWeights));
    std::uniform_int_distribution<uint32_t> number;
    for (size_t i = 0; i < n; ++i) ops.push_back({static_cast<Op::Kind>(kind(random)), number(random), number(random)});
    return ops;
}

std::string describe(const std::vector<Op>& ops) {
    std::string text;
    for (const Op& op : ops) text += fmt::format("  {{Op::Kind({}), {}u, {}u}},\n", static_cast<int>(op.kind), op.a, op.b);
    return text;
}

TEST(PrefixTreeProperty, TenThousandRandomOperationsAgreeWithThePlainModel) {
    int32_t n_reads = 0;
    for (uint32_t seed = 0; seed < 40; ++seed) {
        const std::vector<Op> ops = random_ops(seed, 250);
        const std::string failure = failure_of(ops, &n_reads);
        if (failure.empty()) continue;
        const std::vector<Op> few = shrink(ops, [](const std::vector<Op>& fewer) { return !failure_of(fewer).empty(); });
        FAIL() << "seed " << seed << ", " << failure << "\nshrunk to " << few.size() << " operations, " << failure_of(few)
               << ":\n"
               << describe(few);
    }
    EXPECT_GT(n_reads, 300) << "what the disk holds is asked for";
}

TEST(PrefixTreeProperty, AFailingRunIsShrunkToWhatMatters) {
    const std::vector<Op> ops = random_ops(1, 300);
    const auto fails = [](const std::vector<Op>& some) {
        const auto is = [](Op::Kind kind) { return [kind](const Op& op) { return op.kind == kind; }; };
        const auto restart = std::find_if(some.begin(), some.end(), is(Op::Kind::restart));
        return std::find_if(restart, some.end(), is(Op::Kind::retry)) != some.end();
    };
    ASSERT_TRUE(fails(ops));
    const std::vector<Op> few = shrink(ops, fails);
    ASSERT_EQ(few.size(), 2u);
    EXPECT_EQ(few[0].kind, Op::Kind::restart);
    EXPECT_EQ(few[1].kind, Op::Kind::retry);
}

}  // namespace
}  // namespace espalier::cache
