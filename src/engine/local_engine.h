// The engine on this machine: one model, one thread that owns caches and runs steps, jobs in and events out (engine.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/model_options.h"
#include "engine/warm_up.h"
#include "text/tokenizer.h"
#include "text/tool_format.h"

namespace espalier::engine {

// Where conversations are kept on disk.
struct DiskOptions {
    std::string directory;      // empty = nowhere
    int64_t bytes_max = 0;      // of all files there
    std::string template_hash;  // conversations of another chat template are not found
};

struct EngineOptions {
    ModelOptions model;
    int32_t context_tokens = 0;  // 0 = what fits: at least 32,768 if the model allows, at most the trained limit
    int32_t sequences_max = 3;   // requests that run at the same time
    int32_t jobs_max = 64;       // requests that wait
    int64_t cache_bytes = 0;     // KV pages, states and their index; 0 = a quarter of free memory
    DiskOptions disk;
    std::string draft = "off";     // the words of --draft
    bool sizes_drafts = true;      // by what passes cost here; false: the same trees on any machine
    text::ToolFormat tool_format;  // of the model, for drafts of calls
    SelfTest self_test;            // before the first job
    Log log;                       // no text of prompts or replies
};

class LocalEngine : public Backend {
public:
    // Loads the model and starts the engine thread. tokenizer may be null when no job will carry stop strings. Errors: those of
    // loading; exhausted with a table of needs against free memory.
    static Result<std::unique_ptr<LocalEngine>> start(const EngineOptions& options,
                                                      std::shared_ptr<const text::Tokenizer> tokenizer);
    // Cancels what runs and joins the thread.
    ~LocalEngine() override;

    Result<std::shared_ptr<JobStream>> submit(Job job) override;
    const BackendInfo& info() const override;
    BackendGauges gauges() const override;
    std::vector<std::shared_ptr<const CacheMiss>> cache_misses(const std::string& owner) const override;
    // Every id that ends a reply according to the model's files.
    const std::vector<TokenId>& eos_ids() const;

private:
    class Impl;
    explicit LocalEngine(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace espalier::engine
