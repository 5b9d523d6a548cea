// A small reference model with a step loop, and the count of allocations, for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "decode/step_loop.h"
#include "model/reference_model.h"

namespace espalier::decode {

// Allocations of this program while `work` runs; -1 under a sanitizer, which brings an allocator of its own.
int64_t count_allocations(const std::function<void()>& work);

class StepLoopTest : public testing::Test {
protected:
    void SetUp() override {
        model::LoadOptions options;
        options.isa = kernels::available_isas().back();
        model_ = model::reference_model("tiny_a", options, pool_);
        memory_ = std::make_unique<cache::Memory>(std::move(*cache::Memory::create(model_->state_shape(), {64, 24})));
        model::PassLimits limits;
        limits.rows_max = 96;
        limits.segments_max = 3;
        limits.context_tokens = 512;
        forward_ = std::move(*model::Forward::create(*model_, *memory_, pool_, limits));
        loop_ = std::move(*StepLoop::create(*forward_, model_->config().vocab));
    }

    std::vector<TokenId> ids(size_t n, uint32_t seed) const {
        std::mt19937 random(seed);
        std::vector<TokenId> result(n);
        for (TokenId& id : result) id = static_cast<TokenId>(random() % 1024);
        return result;
    }
    Generation make(std::vector<TokenId> prompt, GenerationParams params) {
        return Generation(std::move(*cache::Sequence::create(*memory_, 512)), std::move(prompt), std::move(params), nullptr);
    }
    std::vector<TokenId> run(Generation& generation, int32_t rows = 96, const StepLoop::BoundaryHook& hook = {}) {
        Generation* const pointer = &generation;
        while (!generation.is_done()) EXPECT_TRUE(loop_->step({&pointer, 1}, rows, hook).has_value());
        return {generation.reply().begin(), generation.reply().end()};
    }

    // Steps all of them together until none is left.
    void run_together(std::vector<Generation>& generations, int32_t rows) {
        for (;;) {
            std::vector<Generation*> open;
            for (Generation& generation : generations) {
                if (!generation.is_done()) open.push_back(&generation);
            }
            if (open.empty()) break;
            ASSERT_TRUE(loop_->step(open, rows, {}).has_value());
        }
    }
    // count_allocations of running it to its end.
    int64_t allocations_of(Generation& generation) {
        Generation* const pointer = &generation;
        bool ok = true;
        const int64_t n = count_allocations([&] {
            while (!generation.is_done()) ok = loop_->step({&pointer, 1}, 96, {}).has_value() && ok;
        });
        EXPECT_TRUE(ok);
        return n;
    }

    ThreadPool pool_{2};
    std::unique_ptr<const model::Model> model_;
    std::unique_ptr<cache::Memory> memory_;
    std::unique_ptr<model::Forward> forward_;
    std::unique_ptr<StepLoop> loop_;
};

}  // namespace espalier::decode
