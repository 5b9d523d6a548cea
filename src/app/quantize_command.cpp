// espalier quantize: a BF16 model folder to NVFP4 or FP8.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "app/commands.h"
#include "app/model_files.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "checkpoint/gguf_files.h"
#include "quant/quantize.h"

namespace espalier::app {
namespace {

constexpr size_t kTextsBytesMax = size_t{1} << 30;

struct QuantizeFlags {
    quant::QuantizeOptions options;
    std::string recipe;
    std::string calib;
    std::string lm_head = "no";
    std::string mtp = "no";
    std::string kv;  // empty: fp8, or none for fp8-block
    std::string report;
    int64_t calib_tokens = 16384;
    int64_t eval_tokens = 2048;
    int32_t n_threads = 0;
    bool as_json = false;
};

// The texts of --calib, or the built-in ones. A model without tokenizer has no texts unless token ids are given.
Result<quant::TokenSet> read_texts(const QuantizeFlags& flags) {
    const std::string& source = flags.options.source;
    ModelFiles files;
    if (std::filesystem::exists(source + "/tokenizer.json")) {
        TRY_ASSIGN(files, load_model_files(source, ""));
    } else if (flags.calib.empty()) {
        return quant::TokenSet();
    }
    quant::TextLimits limits;
    limits.calibration_tokens = flags.calib_tokens;
    limits.heldout_tokens = flags.eval_tokens;
    TRY_ASSIGN(limits.vocab, quant::vocabulary_of(source));
    const quant::TextModel model{files.tokenizer.get(), files.chat_template.get()};
    if (flags.calib.empty()) return quant::read_token_set(quant::default_calibration(), "built-in texts", model, limits);
    TRY_ASSIGN(const std::string text, read_file(flags.calib, kTextsBytesMax));
    return quant::read_token_set(text, flags.calib, model, limits);
}

Status quantize(QuantizeFlags& flags) {
    quant::QuantizeOptions& options = flags.options;
    if (checkpoint::is_gguf(options.source)) {
        return unsupported(
            fmt::format("{}: a GGUF file cannot be quantised yet; give the Hugging Face folder of the model", options.source));
    }
    TRY_ASSIGN(options.choices.recipe, quant::parse_recipe(flags.recipe));
    options.choices.has_head = flags.lm_head == "yes";
    options.choices.has_mtp = flags.mtp == "yes";
    options.choices.has_fp8_kv = flags.kv.empty() ? options.choices.recipe != quant::Recipe::fp8_block : flags.kv == "fp8";
    options.version = ESPALIER_VERSION;
    TRY_ASSIGN(options.isa, kernels::choose_isa(environment_variable("ESPALIER_ISA").value_or("")));
    TRY_ASSIGN(const quant::TokenSet tokens, read_texts(flags));
    ProgressLine line;
    options.progress = [&](std::string_view what, double done) {
        line.update(fmt::format("{:3.0f} % {}", 100 * done, what));
        return Status();
    };
    ThreadPool pool(flags.n_threads > 0 ? flags.n_threads : engine::allowed_cpus());
    TRY_ASSIGN(const quant::Report report, quant::quantize(options, tokens, pool));
    line.finish();
    const std::string json = dump_json(quant::report_json(report), 2);
    if (!flags.report.empty()) TRY(write_file_atomic(flags.report, json + "\n"));
    std::fputs((flags.as_json ? json + "\n" : quant::report_text(report)).c_str(), stdout);
    return {};
}

}  // namespace

void add_quantize(CLI::App& parent, Action& action) {
    auto flags = std::make_shared<QuantizeFlags>();
    CLI::App* c = parent.add_subcommand("quantize", "Makes an NVFP4 or FP8 model folder from a BF16 one");
    c->add_option("SRC", flags->options.source, "Model folder with BF16 weights")->required();
    c->add_option("DST", flags->options.destination, "Folder to write; must not exist or be empty")->required();
    c->add_option("--recipe", flags->recipe, "nvfp4 (W4A4), nvfp4-w4a16, fp8 (one scale a tensor), fp8-block (128x128)")
        ->required();
    c->add_option("--calib", flags->calib,
                  "JSON lines of chats {\"messages\", \"tools\"}, {\"text\"} or token ids; default: built in");
    c->add_option("--calib-tokens", flags->calib_tokens, "Tokens to calibrate on")
        ->check(CLI::Range(1, 1 << 30))
        ->capture_default_str();
    c->add_option("--eval-tokens", flags->eval_tokens, "Held-out tokens to compare both models on; 0: no comparison")
        ->check(CLI::Range(0, 1 << 30))
        ->capture_default_str();
    const auto yes_or_no = CLI::IsMember({"yes", "no"});
    c->add_option("--lm-head", flags->lm_head, "Quantise the LM head: yes, no")->check(yes_or_no)->capture_default_str();
    c->add_option("--mtp", flags->mtp, "Quantise the MTP layer: yes, no")->check(yes_or_no)->capture_default_str();
    c->add_option("--kv", flags->kv, "Scales for FP8 keys and values: fp8, none; default fp8, with fp8-block none")
        ->check(CLI::IsMember({"fp8", "none"}));
    c->add_option("--report", flags->report, "Write the error report as JSON to this file");
    c->add_flag("--resume", flags->options.resume, "Go on with an interrupted run");
    c->add_flag("--json", flags->as_json, "Print the report as JSON");
    c->add_option("--threads", flags->n_threads, "Worker threads, 0 = all CPUs")
        ->check(CLI::Range(0, 1024))
        ->capture_default_str();
    c->footer("Example: espalier quantize MODEL MODEL-NVFP4 --recipe nvfp4 --lm-head yes --mtp yes --report report.json");
    c->callback([flags, &action] { action = [flags] { return quantize(*flags); }; });
}

}  // namespace espalier::app
