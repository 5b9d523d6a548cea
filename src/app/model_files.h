// The text side of a model folder or GGUF file: tokenizer, chat template, tool format, sampling defaults.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/options.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/tool_format.h"

namespace espalier::app {

struct ModelFiles {
    std::shared_ptr<const text::Tokenizer> tokenizer;
    std::shared_ptr<const text::ChatTemplate> chat_template;  // null: the model has none
    text::ToolFormat tool_format;
    server::SamplingDefaults sampling;
    // Added tokens that end a turn: the tokenizer's own end token, and <|im_end|> where the template uses it. Checkpoints without
    // a generation_config.json name only the end of a document.
    std::vector<int32_t> stop_ids;
};

// The union of what the weights' files and the text side say, without repeats.
std::vector<int32_t> all_stop_ids(std::span<const int32_t> from_weights, const ModelFiles& files);

// chat_template_path: a file to use instead of the model's own; empty = the model's. Looks for chat_template.jinja, then the
// "chat_template" field of tokenizer_config.json; a GGUF file has everything in its metadata. Errors: those of reading and
// parsing; a missing template is none.
Result<ModelFiles> load_model_files(const std::string& model_path, const std::string& chat_template_path);

}  // namespace espalier::app
