// The text side of a GGUF file: what a model folder has in tokenizer.json, tokenizer_config.json and generation_config.json.
#pragma once

#include <memory>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "text/tokenizer.h"

namespace espalier::app {

struct GgufText {
    std::shared_ptr<const text::Tokenizer> tokenizer;
    Json tokenizer_config;   // "eos_token", "chat_template" where the file has them
    Json generation_config;  // sampling advice under Hugging Face's names
};

// Errors: a file that cannot be read, or metadata without a tokenizer of a supported kind, by key.
Result<GgufText> read_gguf_text(const std::string& path);

// The tokenizer of a model folder, a GGUF file or a tokenizer.json.
Result<std::shared_ptr<const text::Tokenizer>> load_tokenizer(const std::string& path);

}  // namespace espalier::app
