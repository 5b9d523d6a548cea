#include "server/cache_miss.h"

#include <fmt/format.h>

namespace espalier::server {
namespace {

// A prompt that goes on from well before the place where it parts had no snapshot nearer to it.
constexpr int32_t kNearTokens = 64;

std::string reason(const engine::CacheMiss& miss) {
    if (miss.common_tokens == miss.prompt_tokens || miss.earlier.empty())
        return "the snapshot had been given up for memory, or none was taken there";
    if (miss.common_tokens - miss.cached_tokens > kNearTokens)
        return "the prompt changed, and the nearest snapshot before the change is further back";
    return "the prompt changed";
}

}  // namespace

Json cache_miss_json(const engine::CacheMiss& miss, const text::Tokenizer& tokenizer) {
    return {{"prompt_tokens", miss.prompt_tokens},
            {"cached_tokens", miss.cached_tokens},
            {"common_tokens", miss.common_tokens},
            {"earlier_tokens", miss.earlier_tokens},
            {"reason", reason(miss)},
            {"text",
             {{"before", tokenizer.decode(miss.before)},
              {"earlier", tokenizer.decode(miss.earlier)},
              {"now", tokenizer.decode(miss.now)}}}};
}

std::string cache_miss_line(const engine::CacheMiss& miss, const text::Tokenizer& tokenizer) {
    const auto quoted = [&](const std::vector<engine::TokenId>& ids) { return dump_json(tokenizer.decode(ids)); };
    return fmt::format(
        "cache miss: {} of {} prompt tokens restored; {} agree with an earlier prompt of {}; {}; after {} came {}, now {}",
        miss.cached_tokens, miss.prompt_tokens, miss.common_tokens, miss.earlier_tokens, reason(miss), quoted(miss.before),
        quoted(miss.earlier), quoted(miss.now));
}

}  // namespace espalier::server
