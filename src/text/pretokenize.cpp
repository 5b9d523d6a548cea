#include "text/pretokenize.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "base/check.h"
#include "text/pretokenize_pattern.h"
#include "text/tokenizer_utf8.h"

namespace espalier::text {

const std::string_view kByteLevelPattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

constexpr size_t kPatternBytesMax = 16384;
// One match of the Qwen pattern backtracks at most once per character; hostile patterns are stopped after about a second.
constexpr uint32_t kMatchStepsMax = 100'000'000;
constexpr uint32_t kHeapKibMax = 65536;  // interpreter only
constexpr size_t kJitStackFirstBytes = 64 * 1024;
constexpr size_t kJitStackMaxBytes = 4 * 1024 * 1024;

// `call` with the C library's opaque pointers owned.
template <auto free_function>
struct Free {
    template <class T>
    void operator()(T* pointer) const {
        free_function(pointer);
    }
};
using CodePtr = std::unique_ptr<pcre2_code, Free<pcre2_code_free>>;
using CompileContextPtr = std::unique_ptr<pcre2_compile_context, Free<pcre2_compile_context_free>>;
using MatchContextPtr = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;
using MatchDataPtr = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;
using JitStackPtr = std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>>;

std::string message_of(int code) {
    PCRE2_UCHAR buffer[256];
    pcre2_get_error_message(code, buffer, sizeof buffer);
    return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct SplitScratch::Impl {
    MatchDataPtr match_data{pcre2_match_data_create(1, nullptr)};
    MatchContextPtr context{pcre2_match_context_create(nullptr)};
    JitStackPtr jit_stack;  // made when the 32 KiB of the machine stack that PCRE2 uses first are not enough
};

SplitScratch::SplitScratch() : impl_(std::make_unique<Impl>()) {
    CHECK(impl_->match_data && impl_->context, "memory for a match");
    pcre2_set_match_limit(impl_->context.get(), kMatchStepsMax);
    pcre2_set_heap_limit(impl_->context.get(), kHeapKibMax);
}

SplitScratch::~SplitScratch() = default;

struct Splitter::Impl {
    CodePtr code;
    bool has_jit = false;

    // The first match at or after `from`; false when there is none or a limit was hit.
    bool find(std::string_view text, size_t from, SplitScratch::Impl& scratch) const {
        int rc = match(text, from, scratch);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT && !scratch.jit_stack) {
            scratch.jit_stack.reset(pcre2_jit_stack_create(kJitStackFirstBytes, kJitStackMaxBytes, nullptr));
            pcre2_jit_stack_assign(scratch.context.get(), nullptr, scratch.jit_stack.get());
            rc = match(text, from, scratch);
        }
        return rc > 0;
    }

    int match(std::string_view text, size_t from, SplitScratch::Impl& scratch) const {
        const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
        const auto function = has_jit ? pcre2_jit_match : pcre2_match;
        return function(code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, scratch.match_data.get(),
                        scratch.context.get());
    }
};

Splitter::Splitter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Splitter::Splitter(Splitter&&) noexcept = default;
Splitter& Splitter::operator=(Splitter&&) noexcept = default;
Splitter::~Splitter() = default;

Result<Splitter> Splitter::compile(std::string_view pattern) {
    if (pattern.size() > kPatternBytesMax) {
        return unsupported(
            fmt::format("the pattern is {} bytes long, at most {} are supported", pattern.size(), kPatternBytesMax));
    }
    TRY_ASSIGN(const std::string translated, translate_pattern(pattern));
    const CompileContextPtr context(pcre2_compile_context_create(nullptr));
    CHECK(context != nullptr, "memory for a pattern");
    pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
    int error_code = 0;
    size_t error_offset = 0;
    auto impl = std::make_unique<Impl>();
    impl->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error_code, &error_offset, context.get()));
    if (!impl->code) {
        return corrupt_data(
            fmt::format("not a regular expression: {} (byte {} of '{}')", message_of(error_code), error_offset, translated));
    }
    // Without JIT (no executable memory allowed) the interpreter gives the same pieces, slower.
    impl->has_jit = pcre2_jit_compile(impl->code.get(), PCRE2_JIT_COMPLETE) == 0;
    return Splitter(std::move(impl));
}

size_t Splitter::piece_end(std::string_view text, size_t from, SplitScratch& scratch) const {
    DCHECK(from < text.size(), "a piece starts inside the text");
    size_t search = from;
    while (search < text.size() && impl_->find(text, search, *scratch.impl_)) {
        const size_t* ovector = pcre2_get_ovector_pointer(scratch.impl_->match_data.get());
        const size_t begin = ovector[0];
        const size_t end = ovector[1];
        if (begin > from) return begin;
        if (end > from) return end;
        // An empty match where the piece starts: look further.
        size_t n_bytes = 0;
        decode_utf8(text.data() + search, n_bytes);
        search += n_bytes;
    }
    return text.size();
}

}  // namespace espalier::text
