// Tokenizer speed on the real vocabulary: MB/s of encode for kinds of text, seconds for a megabyte without a space, load time.
// Bytes per second count the UTF-8 input. Targets: prose 10 MB/s, a megabyte without a space 0.5 s, load 0.5 s.
#include <benchmark/benchmark.h>

#include "text/tokenizer_test_data.h"

namespace espalier::text {
namespace {

using testing::repeated;

// About `bytes_min` bytes of the golden texts of some categories, in file order, again and again.
std::string golden_text(const std::vector<std::string>& categories, size_t bytes_min) {
    std::string once;
    for (const Json& line : testing::golden_lines("tokenizer/tokenizer.jsonl")) {
        const std::string category = line.at("cat").get<std::string>();
        if (std::find(categories.begin(), categories.end(), category) == categories.end()) continue;
        once += line.at("text").get<std::string>();
        once += '\n';
    }
    return repeated(once, bytes_min / once.size() + 1);
}

// Words of two to nine letters that are mostly no tokens: nothing is found whole.
std::string random_words(size_t n_bytes) {
    std::string text;
    uint64_t state = 1;
    const auto next = [&state](uint64_t below) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        return (state >> 33) % below;
    };
    while (text.size() < n_bytes) {
        for (uint64_t n = 2 + next(8); n > 0; --n) text += static_cast<char>('a' + next(26));
        text += ' ';
    }
    return text;
}

std::string random_letters(size_t n_bytes) {
    std::string text = random_words(n_bytes);
    text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
    return text;
}

void encode(benchmark::State& state, const std::string& text) {
    const auto tokenizer = testing::real_tokenizer();
    size_t n_tokens = 0;
    for (auto _ : state) {
        n_tokens = tokenizer->encode(text).size();
        benchmark::DoNotOptimize(n_tokens);
    }
    state.SetBytesProcessed(static_cast<int64_t>(text.size() * state.iterations()));
    state.counters["tokens"] = static_cast<double>(n_tokens);
}

constexpr size_t kTextBytes = 1 << 20;

void prose(benchmark::State& state) {
    encode(state, golden_text({"prose"}, kTextBytes));
}
void code(benchmark::State& state) {
    encode(state, golden_text({"code", "shell", "diff", "data"}, kTextBytes));
}
void agent_log(benchmark::State& state) {
    encode(state, golden_text({"workload_tool", "workload_user", "workload_cmd"}, kTextBytes));
}
void cjk(benchmark::State& state) {
    encode(state, golden_text({"cjk"}, kTextBytes));
}
void european(benchmark::State& state) {
    encode(state, golden_text({"european", "nfc"}, kTextBytes));
}
void unknown_words(benchmark::State& state) {
    encode(state, random_words(kTextBytes));
}
void no_space_one_letter(benchmark::State& state) {
    encode(state, std::string(kTextBytes, 'a'));
}
void no_space_random(benchmark::State& state) {
    encode(state, random_letters(kTextBytes * 5 / 4));
}
void no_space_prose(benchmark::State& state) {
    std::string text = golden_text({"prose"}, kTextBytes * 3 / 2);
    std::erase_if(text, [](char c) { return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z'); });
    encode(state, text);
}
void spaces(benchmark::State& state) {
    encode(state, std::string(kTextBytes, ' '));
}
void alternating_marks(benchmark::State& state) {
    encode(state, repeated("\u0301\u0316", kTextBytes / 4));
}

void load(benchmark::State& state) {
    const std::string json = testing::gunzip(testing::golden_path("qwen3.5-tokenizer.json.gz"));
    for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::parse(json));
    state.SetBytesProcessed(static_cast<int64_t>(json.size() * state.iterations()));
}

void decode(benchmark::State& state) {
    const auto tokenizer = testing::real_tokenizer();
    const std::string text = golden_text({"prose"}, kTextBytes);
    const std::vector<TokenId> ids = tokenizer->encode(text);
    for (auto _ : state) {
        DecodeStream stream(*tokenizer);
        size_t n_bytes = 0;
        for (const TokenId id : ids) n_bytes += stream.push(id).size();
        benchmark::DoNotOptimize(n_bytes);
    }
    state.SetBytesProcessed(static_cast<int64_t>(text.size() * state.iterations()));
}

BENCHMARK(prose)->Unit(benchmark::kMillisecond);
BENCHMARK(code)->Unit(benchmark::kMillisecond);
BENCHMARK(agent_log)->Unit(benchmark::kMillisecond);
BENCHMARK(cjk)->Unit(benchmark::kMillisecond);
BENCHMARK(european)->Unit(benchmark::kMillisecond);
BENCHMARK(unknown_words)->Unit(benchmark::kMillisecond);
BENCHMARK(no_space_one_letter)->Unit(benchmark::kMillisecond);
BENCHMARK(no_space_random)->Unit(benchmark::kMillisecond);
BENCHMARK(no_space_prose)->Unit(benchmark::kMillisecond);
BENCHMARK(spaces)->Unit(benchmark::kMillisecond);
BENCHMARK(alternating_marks)->Unit(benchmark::kMillisecond);
BENCHMARK(load)->Unit(benchmark::kMillisecond);
BENCHMARK(decode)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace espalier::text
