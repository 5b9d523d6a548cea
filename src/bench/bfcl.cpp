// Source of the request's shape, the aggregation and the gate: mlcommons/endpoints (commit ea332753), bfcl_v4_scorer.py and
// examples/11_Edge_Agentic_Example.
#include "bench/bfcl.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/mapped_file.h"
#include "bench/bfcl/python.h"
#include "bench/chat_client.h"
#include "bench/iou.h"
#include "bench/result_files.h"

namespace espalier::bench {
namespace {

using text::Value;
using text::ValueDict;
using text::ValueList;

constexpr size_t kDatasetBytesMax = size_t{1} << 30;
constexpr int kConnectFailuresMax = 3;
constexpr int kSchemaDepthMax = 64;

struct Category {
    std::string_view name;
    std::vector<std::string_view> subsets;
};

const std::vector<Category>& categories() {
    static const std::vector<Category> list{
        {"non_live", {"simple_python", "simple_java", "simple_javascript", "multiple", "parallel", "parallel_multiple"}},
        {"live", {"live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"}},
        {"hallucination", {"irrelevance", "live_irrelevance"}}};
    return list;
}

double percent(double share) {
    return round_decimal(share * 100, 2);
}
double share_of(const SubsetCount& count) {
    return static_cast<double>(count.correct) / static_cast<double>(count.issued);
}

double mean(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// non_live: the simple subsets count as one; live: by samples; hallucination: plain mean. nullopt = no sample belongs to it.
std::optional<double> category_share(const Category& category, const std::map<std::string, SubsetCount>& subsets) {
    std::vector<double> simple;
    std::vector<double> others;
    SubsetCount all;
    for (const std::string_view name : category.subsets) {
        const auto found = subsets.find(std::string(name));
        if (found == subsets.end() || found->second.issued == 0) continue;
        all.issued += found->second.issued;
        all.correct += found->second.correct;
        (name.starts_with("simple_") ? simple : others).push_back(share_of(found->second));
    }
    if (all.issued == 0) return std::nullopt;
    if (category.name == "live") return share_of(all);
    if (!simple.empty()) others.insert(others.begin(), mean(simple));
    return mean(others);
}

// JSON schema type -> the checker's name.
Value checker_type(const Value& type) {
    const std::string* name = type.as_string();
    if (name == nullptr) return Value("any");
    if (*name == "number") return Value("float");
    if (*name == "object") return Value("dict");
    return type;
}

// A JSON schema in BFCL's form, so that a user's own tools can be checked.
Value checker_schema(const Value& schema, int depth) {
    if (schema.as_dict() == nullptr || depth > kSchemaDepthMax) return schema;
    ValueDict converted;
    bool has_type = false;
    for (const auto& [key, value] : *schema.as_dict()) {
        if (key == "type") {
            has_type = true;
            converted.emplace_back(key, checker_type(value));
        } else if (key == "items") {
            converted.emplace_back(key, checker_schema(value, depth + 1));
        } else if (key == "properties" && value.as_dict() != nullptr) {
            ValueDict properties;
            for (const auto& [name, property] : *value.as_dict())
                properties.emplace_back(name, checker_schema(property, depth + 1));
            converted.emplace_back(key, Value(std::move(properties)));
        } else {
            converted.emplace_back(key, value);
        }
    }
    if (!has_type) converted.emplace_back("type", Value("any"));
    const Value result(std::move(converted));
    const Value* type = result.find("type");
    const bool is_list = type != nullptr && type->as_string() != nullptr && *type->as_string() == "array";
    if (!is_list || schema.find("items") != nullptr) return result;
    ValueDict with_items = *result.as_dict();
    with_items.emplace_back("items", Value(ValueDict{{"type", Value("any")}}));
    return Value(std::move(with_items));
}

Value functions_of_tools(const Value& tools) {
    ValueList functions;
    if (tools.as_list() == nullptr) return Value(functions);
    for (const Value& tool : *tools.as_list()) {
        const Value* function = tool.find("function");
        if (function == nullptr || function->find("name") == nullptr) continue;
        const Value* given = function->find("parameters");
        ValueDict parameters;
        const Value schema = given != nullptr ? checker_schema(*given, 0) : Value(ValueDict());
        if (schema.as_dict() != nullptr) parameters = *schema.as_dict();
        if (schema.find("properties") == nullptr) parameters.emplace_back("properties", Value(ValueDict()));
        if (schema.find("required") == nullptr) parameters.emplace_back("required", Value(ValueList()));
        functions.push_back(Value(ValueDict{{"name", *function->find("name")}, {"parameters", Value(std::move(parameters))}}));
    }
    return Value(std::move(functions));
}

const Json* member(const Json& object, const char* key) {
    const auto it = object.find(key);
    return it == object.end() || it->is_null() ? nullptr : &*it;
}

std::string default_subset(const Value& answer) {
    const size_t n_calls = answer.as_list() != nullptr ? answer.as_list()->size() : 0;
    if (n_calls == 0) return "irrelevance";
    return n_calls == 1 ? "multiple" : "parallel_multiple";
}

// values: the same line as template values, which keep integers and floats apart and long integers whole.
Result<BfclSample> read_sample(const Json& line, const Value& values, size_t number) {
    if (!line.is_object()) return invalid_input("not an object");
    const Json* messages = member(line, "messages");
    const Json* tools = member(line, "tools");
    if (messages == nullptr || !messages->is_array() || messages->empty())
        return invalid_input("\"messages\" is not a list with entries");
    if (tools == nullptr || !tools->is_array()) return invalid_input("\"tools\" is not a list");
    const Json* answer = member(line, "ground_truth");
    if (answer != nullptr && !answer->is_array()) return invalid_input("\"ground_truth\" is not a list");
    BfclSample sample{fmt::format("sample_{}", number), {}, *messages, *tools};
    for (const char* key : {"sample_id", "id"}) {
        if (const Json* id = member(line, key); id != nullptr && id->is_string()) sample.id = id->get<std::string>();
    }
    const Value* answer_value = values.find("ground_truth");
    sample.truth.answer = answer != nullptr ? *answer_value : Value(ValueList());
    const Json* subset = member(line, "subset");
    sample.truth.subset =
        subset != nullptr && subset->is_string() ? subset->get<std::string>() : default_subset(sample.truth.answer);
    const bool has_functions = member(line, "functions") != nullptr;
    sample.truth.functions = has_functions ? *values.find("functions") : functions_of_tools(*values.find("tools"));
    return sample;
}

class BfclRunner {
public:
    BfclRunner(const BfclOptions& options, std::vector<BfclSample> samples, ServerAddress address)
        : options_(&options),
          samples_(std::move(samples)),
          client_(std::move(address), options.api_key, options.sample_timeout_s) {}

    Result<BfclReport> run();

private:
    Status run_sample(const BfclSample& sample);
    void score(const BfclSample& sample, const ChatOutcome& outcome, Json& line);
    Result<BfclReport> finish();
    Result<Json> entries_kept() const;

    const BfclOptions* options_;
    std::vector<BfclSample> samples_;
    ChatClient client_;
    std::string model_;
    std::ofstream verdicts_;
    std::map<std::string, SubsetCount> subsets_;
    BfclReport report_;
    int64_t begin_ns_ = 0;
    int64_t n_empty_ = 0;
    int n_connect_failures_ = 0;
    bool is_stopped_ = false;
};

Result<BfclReport> BfclRunner::run() {
    TRY(make_folder(options_->out_dir + "/accuracy"));
    verdicts_.open(options_->out_dir + "/bfcl_verdicts.jsonl", std::ios::trunc);
    if (!verdicts_) return invalid_input(fmt::format("{}: cannot write bfcl_verdicts.jsonl", options_->out_dir));
    model_ = options_->model.empty() ? client_.first_model() : options_->model;
    for (const BfclSample& sample : samples_) ++subsets_[sample.truth.subset].issued;
    begin_ns_ = monotonic_ns();
    for (const BfclSample& sample : samples_) {
        if (!is_stopped_) TRY(run_sample(sample));
    }
    return finish();
}

Status BfclRunner::run_sample(const BfclSample& sample) {
    const std::string body = fmt::format(
        "{{\"model\":{},\"messages\":{},\"temperature\":0.0,\"max_completion_tokens\":{},\"stream\":true,\"seed\":42,\"tools\":{}"
        ","
        "\"tool_choice\":\"auto\"}}",
        dump_json(Json(model_)), dump_json(sample.messages), options_->max_completion_tokens, dump_json(sample.tools));
    const ChatOutcome outcome = client_.complete(body, "");
    const bool is_unreachable = outcome.fault == "connect";
    if (is_unreachable && report_.n_samples == 0) {
        return invalid_input(fmt::format("{}: cannot connect ({}); is the server running?", options_->url, outcome.detail));
    }
    ++report_.n_samples;
    n_connect_failures_ = is_unreachable ? n_connect_failures_ + 1 : 0;
    is_stopped_ = n_connect_failures_ >= kConnectFailuresMax;
    report_.n_malformed_frames += outcome.reply.n_malformed;

    Json line{{"id", sample.id}, {"subset", sample.truth.subset}};
    if (outcome.fault.empty()) {
        score(sample, outcome, line);
    } else {
        ++report_.faults[outcome.fault];
        line["score"] = nullptr;
        line["fault"] = {{"kind", outcome.fault}, {"message", outcome.detail}};
    }
    verdicts_ << dump_json(line) << '\n' << std::flush;
    if (!verdicts_) return exhausted(fmt::format("{}: cannot write, is the disk full?", options_->out_dir));
    if (options_->on_progress) {
        options_->on_progress(fmt::format("sample {}/{}  {}  correct {} of {}", report_.n_samples, samples_.size(),
                                          sample.truth.subset, report_.n_correct, report_.n_completed));
    }
    return {};
}

void BfclRunner::score(const BfclSample& sample, const ChatOutcome& outcome, Json& line) {
    const StreamedReply& reply = outcome.reply;
    const BfclVerdict verdict = bfcl_verdict(sample.truth, bfcl_reply(reply.reasoning + reply.content, reply.tool_calls()));
    SubsetCount& count = subsets_[sample.truth.subset];
    ++count.completed;
    ++report_.n_completed;
    if (reply.first_chunk == FirstChunk::none) ++n_empty_;
    if (!verdict.score) ++report_.n_exceptions;
    if (verdict.score == 1.0) {
        ++count.correct;
        ++report_.n_correct;
    }
    if (!verdict.error_type.empty()) ++report_.errors[verdict.error_type];
    line["score"] = verdict.score.value_or(0.0);
    line["error_type"] = verdict.error_type.empty() ? Json() : Json(verdict.error_type);
    if (!verdict.detail.empty()) line["detail"] = verdict.detail;
    line["content"] = reply.content;
    line["tool_calls"] = reply.tool_calls();
}

// The entries of other phases that the file already holds.
Result<Json> BfclRunner::entries_kept() const {
    const std::string path = options_->out_dir + "/accuracy/accuracy_results.json";
    Json kept = Json::array();
    if (!std::filesystem::exists(path)) return kept;
    TRY_ASSIGN(const std::string text, read_file(path, kDatasetBytesMax));
    const auto results = parse_json(text, path);
    if (!results || !results->is_object() || !results->contains("accuracy_scores")) return kept;
    for (const Json& entry : (*results)["accuracy_scores"]) {
        if (entry.is_object() && entry.value("dataset_type", "") == "performance") kept.push_back(entry);
    }
    return kept;
}

Result<BfclReport> BfclRunner::finish() {
    if (options_->on_progress) options_->on_progress("");
    const auto n_issued = static_cast<int64_t>(samples_.size());
    const BfclAggregate aggregate = aggregate_bfcl(subsets_);
    const int64_t duration_ns = monotonic_ns() - begin_ns_;
    report_.duration_s = static_cast<double>(duration_ns) / 1e9;
    report_.breakdown = aggregate.breakdown;
    report_.overall = aggregate.breakdown["overall_accuracy"].get<double>();
    report_.normalised = aggregate.breakdown["normalized_single_turn_score"].get<double>();
    report_.has_passed_gate = report_.overall >= kGateOverall && report_.normalised >= kGateNormalised;
    report_.out_dir = options_->out_dir;
    TRY_ASSIGN(Json entries, entries_kept());
    entries.push_back({{"dataset_name", "bfcl_v4::function_calling"},
                       {"extractor", "FunctionCallExtractor"},
                       {"ground_truth_column", "ground_truth"},
                       {"score", aggregate.score},
                       {"unit_samples", n_issued},
                       {"num_repeats", 1},
                       {"total_samples", n_issued},
                       {"duration_s", static_cast<double>((duration_ns + 500000) / 1000000) / 1000.0},
                       {"complete", !is_stopped_},
                       {"dataset_type", "accuracy"},
                       {"breakdown", aggregate.breakdown},
                       {"response_counts",
                        {{"issued", n_issued},
                         {"scored", report_.n_completed},
                         {"empty", n_empty_},
                         {"missing", n_issued - report_.n_completed}}}});
    TRY(write_file_atomic(options_->out_dir + "/accuracy/accuracy_results.json", dump_json(accuracy_results(entries), 2)));
    return report_;
}

}  // namespace

Result<std::vector<BfclSample>> parse_bfcl_samples(std::string_view jsonl, std::string_view what) {
    std::vector<BfclSample> samples;
    for (size_t number = 1; !jsonl.empty(); ++number) {
        const size_t end = jsonl.find('\n');
        const std::string_view line = jsonl.substr(0, end);
        jsonl = end == std::string_view::npos ? std::string_view() : jsonl.substr(end + 1);
        if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        TRY_ASSIGN(const Json json, parse_json(line, fmt::format("{} line {}", what, number)));
        TRY_ASSIGN(const Value values, text::parse_json_value(line, fmt::format("{} line {}", what, number)));
        auto sample = read_sample(json, values, samples.size());
        if (!sample) return invalid_input(fmt::format("{} line {}: {}", what, number, sample.error().message));
        samples.push_back(*std::move(sample));
    }
    if (samples.empty()) return invalid_input(fmt::format("{}: no sample found; expected JSON lines", what));
    return samples;
}

BfclAggregate aggregate_bfcl(const std::map<std::string, SubsetCount>& subsets) {
    SubsetCount all;
    Json subset_scores = Json::object();
    Json unscored = Json::object();
    std::set<std::string_view> known;
    for (const Category& category : categories()) known.insert(category.subsets.begin(), category.subsets.end());
    for (const auto& [name, count] : subsets) {
        all.issued += count.issued;
        all.completed += count.completed;
        all.correct += count.correct;
        if (count.issued == 0) continue;
        subset_scores[name] = percent(share_of(count));
        if (!known.contains(name)) unscored[name] = percent(share_of(count));
    }
    Json category_scores = Json::object();
    std::vector<double> shares;
    for (const Category& category : categories()) {
        const std::optional<double> share = category_share(category, subsets);
        if (!share) continue;
        category_scores[std::string(category.name)] = percent(*share);
        shares.push_back(*share);
    }
    if (all.completed == 0) {  // the harness then writes zeros and empty objects
        subset_scores.clear();
        unscored.clear();
        category_scores.clear();
    }
    BfclAggregate aggregate;
    aggregate.score = all.issued > 0 ? static_cast<double>(all.correct) / static_cast<double>(all.issued) : 0;
    aggregate.breakdown = {{"overall_accuracy", percent(aggregate.score)},
                           {"normalized_single_turn_score", percent(mean(shares))},
                           {"category_scores", std::move(category_scores)},
                           {"subset_scores", std::move(subset_scores)},
                           {"unscored_subsets", std::move(unscored)},
                           {"total_samples", all.completed},
                           {"issued_samples", all.issued}};
    return aggregate;
}

Json BfclReport::to_json() const {
    return {{"samples", n_samples},
            {"completed", n_completed},
            {"correct", n_correct},
            {"scorer_exceptions", n_exceptions},
            {"overall", overall},
            {"normalised", normalised},
            {"passed_gate", has_passed_gate},
            {"breakdown", breakdown},
            {"errors", errors},
            {"faults", faults},
            {"malformed_frames", n_malformed_frames},
            {"duration_s", duration_s},
            {"out_dir", out_dir}};
}

std::string BfclReport::to_table() const {
    std::string table;
    const auto row = [&](std::string_view name, const std::string& value) { table += fmt::format("  {:<28}{}\n", name, value); };
    row("samples", fmt::format("{}, {} answered, {:.1f} s", n_samples, n_completed, duration_s));
    row("overall", fmt::format("{:.2f} %  (gate {:.2f})", overall, kGateOverall));
    row("normalised", fmt::format("{:.2f} %  (gate {:.2f})", normalised, kGateNormalised));
    for (const char* group : {"category_scores", "subset_scores"}) {
        for (const auto& [name, value] : breakdown[group].items()) row("  " + name, fmt::format("{:.2f} %", value.get<double>()));
    }
    if (n_exceptions > 0) row("scorer would raise", fmt::format("{} replies, counted as wrong", n_exceptions));
    for (const auto& [kind, n] : faults) row("failed: " + kind, std::to_string(n));
    if (n_malformed_frames > 0) row("malformed frames", std::to_string(n_malformed_frames));
    row("files", out_dir);
    return table;
}

Result<BfclReport> run_bfcl(const BfclOptions& options) {
    if (options.out_dir.empty()) return invalid_input("no folder for the results was given");
    TRY_ASSIGN(ServerAddress address, parse_server_url(options.url));
    TRY_ASSIGN(const std::string text, read_file(options.dataset_path, kDatasetBytesMax));
    TRY_ASSIGN(std::vector<BfclSample> samples, parse_bfcl_samples(text, options.dataset_path));
    return BfclRunner(options, std::move(samples), std::move(address)).run();
}

}  // namespace espalier::bench
