#include "kernels/delta/delta.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/act/act_ref.h"
#include "kernels/delta/delta_ref.h"
#include "kernels/testing.h"
#include "tensor/buffer.h"

namespace espalier::kernels {
namespace {

struct DeltaCase {
    int64_t dk = 0;
    int64_t n_columns = 0;
    int64_t spine = 0;
    std::vector<int32_t> parents;  // [n_nodes]
    std::vector<float> q, k, v, decay, beta, state;

    int64_t n_nodes() const { return static_cast<int64_t>(parents.size()); }

    DeltaArgs args() const {
        DeltaArgs a;
        a.q = q.data();
        a.k = k.data();
        a.qk_stride = dk;
        a.v = v.data();
        a.v_stride = n_columns;
        a.decay = decay.data();
        a.beta = beta.data();
        a.gate_stride = 1;
        a.parents = parents.data();
        a.n_nodes = n_nodes();
        a.spine = spine;
        a.dk = dk;
        a.n_columns = n_columns;
        a.state_in = state.data();
        a.state_stride = n_columns;
        return a;
    }
};

DeltaCase make_case(int64_t dk, int64_t n_columns, int64_t spine, std::vector<int32_t> tree) {
    DeltaCase c;
    c.dk = dk;
    c.n_columns = n_columns;
    c.spine = spine;
    c.parents.assign(static_cast<size_t>(spine), 12345);  // not read
    c.parents.insert(c.parents.end(), tree.begin(), tree.end());
    const int64_t n = c.n_nodes();
    const float unit = 1.0f / std::sqrt(static_cast<float>(dk));
    c.q = normal_values(n * dk, 1, unit);
    c.k = normal_values(n * dk, 2, unit);
    c.v = normal_values(n * n_columns, 3);
    c.decay = uniform_values(n, 4, 0.5f, 1.0f);
    c.beta = uniform_values(n, 5, 0.05f, 0.98f);
    c.state = normal_values(dk * n_columns, 6, 0.3f);
    return c;
}

struct DeltaRun {
    std::vector<float> out, state;
};

// Where node i + 1 is the only one that starts from node i.
std::vector<uint8_t> continues_of(const DeltaCase& c) {
    std::vector<uint8_t> continues(c.parents.size(), 0);
    for (size_t i = static_cast<size_t>(c.spine); i + 1 < c.parents.size(); ++i) {
        const auto begin = c.parents.begin() + c.spine;
        const bool is_only = std::count(begin, c.parents.end(), static_cast<int32_t>(i)) == 1;
        continues[i] = is_only && c.parents[i + 1] == static_cast<int32_t>(i) ? 1 : 0;
    }
    return continues;
}

enum class Keep { needed_states, every_state };

DeltaRun run(const KernelTable& table, const DeltaCase& c, Keep keep = Keep::needed_states) {
    DeltaRun r;
    r.out.resize(static_cast<size_t>(c.n_nodes() * c.n_columns));
    r.state = c.state;  // updated in place
    Buffer scratch = *Buffer::allocate(static_cast<size_t>((1 + c.n_nodes() - c.spine) * c.dk * kDeltaColumns) * sizeof(float));
    DeltaArgs args = c.args();
    args.state_in = r.state.data();
    args.state_out = r.state.data();
    args.out = r.out.data();
    args.out_stride = c.n_columns;
    args.scratch = scratch.as<float>();
    const std::vector<uint8_t> continues = continues_of(c);
    if (keep == Keep::needed_states) {
        args.continues = continues.data();
        args.store = StateStore::streamed;
        args.state_next = r.state.data();
    }
    table.delta(args);
    return r;
}

// Shapes: dk, columns, chain length, tree behind it.
std::vector<DeltaCase> all_cases() {
    std::vector<DeltaCase> cases;
    for (const int64_t n_columns : {1, 7, 15, 16, 17, 31, 32}) {
        cases.push_back(make_case(32, n_columns, 3, {}));
        cases.push_back(make_case(8, n_columns, 0, {-1, 0, 0, 1, -1, 4}));
        cases.push_back(make_case(128, n_columns, 2, {1, 2, 2, 1, 4, 3}));
        cases.push_back(make_case(16, n_columns, 1, {0, 1, 2, 3, 0, 5, 6, 5}));
    }
    cases.push_back(make_case(4, 5, 40, {}));
    return cases;
}

class DeltaTest : public testing::TestWithParam<KernelVariant> {};

TEST_P(DeltaTest, MatchesTheOracle) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    for (const DeltaCase& c : all_cases()) {
        const DeltaRun found = run(GetParam().table, c);
        const DeltaRefResult expected = delta_ref(c.args());
        EXPECT_LT(max_abs_difference(found.out, expected.out), 3e-6);
        if (c.spine > 0) {
            EXPECT_LT(max_abs_difference(found.state, expected.states[static_cast<size_t>(c.spine - 1)]), 3e-6);
        } else {
            EXPECT_SAME_BITS(found.state, c.state) << "a tree alone leaves the committed state";
        }
    }
}

TEST_P(DeltaTest, SameBitsAsScalar) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    ASSERT_TRUE(GetParam().flags & kSameBits);
    for (DeltaCase c : all_cases()) {
        const auto same = [&] {
            const DeltaRun found = run(GetParam().table, c);
            const DeltaRun scalar = run(scalar_table(), c, Keep::every_state);
            EXPECT_SAME_BITS(found.out, scalar.out) << c.n_columns << " columns";
            EXPECT_SAME_BITS(found.state, scalar.state) << c.n_columns << " columns";
        };
        same();
        c.v = extreme_values(static_cast<int64_t>(c.v.size()), 7);
        c.state = extreme_values(static_cast<int64_t>(c.state.size()), 8);
        same();
    }
}

TEST_P(DeltaTest, EveryPathOfATreeIsItsChain) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    ASSERT_TRUE(GetParam().flags & kRowIndependent);
    const DeltaCase tree = make_case(32, 20, 2, {1, 2, 2, 1, 4, 3});
    const DeltaRun whole = run(GetParam().table, tree);
    for (int64_t leaf = tree.spine; leaf < tree.n_nodes(); ++leaf) {
        std::vector<int64_t> path;
        for (int64_t node = leaf; node >= 0; node = node < tree.spine ? node - 1 : tree.parents[static_cast<size_t>(node)]) {
            path.insert(path.begin(), node);
        }
        DeltaCase chain = make_case(32, 20, static_cast<int64_t>(path.size()), {});
        chain.state = tree.state;
        for (size_t i = 0; i < path.size(); ++i) {
            const auto copy_row = [&](const std::vector<float>& from, std::vector<float>& to, int64_t width) {
                std::copy_n(from.begin() + path[i] * width, width, to.begin() + static_cast<int64_t>(i) * width);
            };
            copy_row(tree.q, chain.q, 32);
            copy_row(tree.k, chain.k, 32);
            copy_row(tree.v, chain.v, 20);
            copy_row(tree.decay, chain.decay, 1);
            copy_row(tree.beta, chain.beta, 1);
        }
        const DeltaRun alone = run(GetParam().table, chain);
        EXPECT_SAME_BITS(std::span(alone.out).last(20), std::span(whole.out).subspan(static_cast<size_t>(leaf * 20), 20)) << leaf;
    }
}

TEST_P(DeltaTest, AnySplitOfAChainOrOfColumnsGivesTheSameBits) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    const DeltaCase chain = make_case(32, 32, 9, {});
    const DeltaRun whole = run(GetParam().table, chain);
    Buffer scratch = *Buffer::allocate(32 * kDeltaColumns * sizeof(float));
    std::vector<float> state = chain.state;
    std::vector<float> out(whole.out.size());
    for (const auto& [begin, end] : {std::pair{0, 1}, std::pair{1, 6}, std::pair{6, 9}}) {
        for (const auto& [column, column_end] : {std::pair{0, 5}, std::pair{5, 23}, std::pair{23, 32}}) {
            DeltaArgs args = chain.args();
            args.q += begin * 32;
            args.k += begin * 32;
            args.v += begin * 32 + column;
            args.decay += begin;
            args.beta += begin;
            args.n_nodes = args.spine = end - begin;
            args.n_columns = column_end - column;
            args.state_in = args.state_out = state.data() + column;
            args.out = out.data() + begin * 32 + column;
            args.out_stride = 32;
            args.scratch = scratch.as<float>();
            GetParam().table.delta(args);
        }
    }
    EXPECT_SAME_BITS(out, whole.out);
    EXPECT_SAME_BITS(state, whole.state);
}

TEST_P(DeltaTest, WithoutOutputsTheStatesAreTheSame) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    const DeltaCase chain = make_case(64, 21, 5, {});
    Buffer scratch = *Buffer::allocate(64 * kDeltaColumns * sizeof(float));
    std::vector<float> state(chain.state.size());
    DeltaArgs args = chain.args();
    args.q = nullptr;
    args.state_out = state.data();
    args.scratch = scratch.as<float>();
    GetParam().table.delta(args);
    EXPECT_SAME_BITS(state, run(GetParam().table, chain).state);
}

INSTANTIATE_TEST_SUITE_P(Table, DeltaTest, testing::ValuesIn(variants_of("delta")),
                         [](const auto& i) { return variant_name(i.param); });

TEST(DeltaGolden, MatchesTransformers) {
    const auto values = [](const char* name) { return read_npy_f32(ESPALIER_UNIT_GOLDEN(name)); };
    DeltaCase c = make_case(128, 32, 32, {});
    const std::vector<float> v = values("gdn_v.npy");
    const std::vector<float> initial = values("gdn_S0.npy");
    const std::vector<float> out = values("gdn_out.npy");
    const std::vector<float> final_state = values("gdn_S32.npy");
    c.q = values("gdn_q.npy");
    c.k = values("gdn_k.npy");
    c.beta = values("gdn_beta.npy");
    c.decay = values("gdn_g.npy");
    for (float& g : c.decay) g = std::exp(g);
    NormArgs norm;
    norm.x_stride = norm.y_stride = norm.n = 128;
    norm.n_rows = 32;
    norm.eps = 1e-6f;
    norm.x = norm.y = c.k.data();
    scalar_table().l2norm(norm);
    norm.x = norm.y = c.q.data();
    norm.scale = 1.0f / std::sqrt(128.0f);
    scalar_table().l2norm(norm);
    for (int64_t column = 0; column < 128; column += 32) {
        std::vector<double> expected_out, expected_state;
        for (int64_t i = 0; i < 128; ++i) {
            for (int64_t j = 0; j < 32; ++j) {
                if (i < 32) c.v[static_cast<size_t>(i * 32 + j)] = v[static_cast<size_t>(i * 128 + column + j)];
                if (i < 32) expected_out.push_back(out[static_cast<size_t>(i * 128 + column + j)]);
                c.state[static_cast<size_t>(i * 32 + j)] = initial[static_cast<size_t>(i * 128 + column + j)];
                expected_state.push_back(final_state[static_cast<size_t>(i * 128 + column + j)]);
            }
        }
        const DeltaRun found = run(scalar_table(), c);
        EXPECT_LT(max_abs_difference(found.out, expected_out), 1e-6);
        EXPECT_LT(max_abs_difference(found.state, expected_state), 1e-6);
    }
}

class DeltaGatesTest : public testing::TestWithParam<KernelVariant> {};

struct GatesRun {
    std::vector<float> decay, beta;
};

GatesRun run_gates(const KernelTable& table, int64_t n_rows, int64_t n_heads, const std::vector<float>& ab,
                   const std::vector<float>& params) {
    GatesRun r = {std::vector<float>(static_cast<size_t>(n_rows * n_heads)),
                  std::vector<float>(static_cast<size_t>(n_rows * n_heads))};
    DeltaGatesArgs args;
    args.a = ab.data();
    args.b = ab.data() + n_heads;
    args.in_stride = 2 * n_heads;
    args.neg_exp_a_log = params.data();
    args.dt_bias = params.data() + n_heads;
    args.decay = r.decay.data();
    args.beta = r.beta.data();
    args.out_stride = n_heads;
    args.n_rows = n_rows;
    args.n_heads = n_heads;
    table.delta_gates(args);
    return r;
}

TEST_P(DeltaGatesTest, MatchesTheOracleAndScalar) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    ASSERT_EQ(GetParam().flags, kSameBits | kRowIndependent);
    for (const int64_t n_heads : {1, 4, 6, 16, 17, 48}) {
        const std::vector<float> ab = normal_values(3 * 2 * n_heads, 1, 6.0f);
        std::vector<float> params = uniform_values(2 * n_heads, 2, -16.0f, -1.0f);
        const GatesRun found = run_gates(GetParam().table, 3, n_heads, ab, params);
        const GatesRun scalar = run_gates(scalar_table(), 3, n_heads, ab, params);
        EXPECT_SAME_BITS(found.decay, scalar.decay);
        EXPECT_SAME_BITS(found.beta, scalar.beta);
        for (int64_t row = 0; row < 3; ++row) {
            for (int64_t h = 0; h < n_heads; ++h) {
                const float* a = ab.data() + row * 2 * n_heads + h;
                const double rate = softplus_ref(static_cast<double>(a[0]) + params[static_cast<size_t>(n_heads + h)]);
                const double decay = std::exp(params[static_cast<size_t>(h)] * rate);
                EXPECT_NEAR(found.decay[static_cast<size_t>(row * n_heads + h)], decay, 2e-6);
                EXPECT_NEAR(found.beta[static_cast<size_t>(row * n_heads + h)], sigmoid_ref(a[n_heads]), 3e-7);
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Table, DeltaGatesTest, testing::ValuesIn(variants_of("delta_gates")),
                         [](const auto& i) { return variant_name(i.param); });

TEST(DeltaGatesGolden, MatchesTransformers) {
    const Json golden = read_json(ESPALIER_UNIT_GOLDEN("decay.json"));
    const float neg_exp_a_log = -std::exp(golden["A_log"].get<float>());
    const float dt_bias = golden["dt_bias"].get<float>();
    for (size_t i = 0; i < golden["a"].size(); ++i) {
        const float a = golden["a"][i].get<float>();
        const GatesRun found = run_gates(scalar_table(), 1, 1, {a, a}, {neg_exp_a_log, dt_bias});
        EXPECT_NEAR(found.decay[0], golden["exp_g"][i].get<double>(), 1e-6) << a;
        EXPECT_NEAR(found.beta[0], golden["sigmoid_of_a"][i].get<double>(), 1e-7) << a;
    }
}

}  // namespace
}  // namespace espalier::kernels
