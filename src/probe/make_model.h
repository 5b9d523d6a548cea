// `espalier eval make-model`: a Hugging Face checkpoint of a real shape with random weights, for timing and tests.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace espalier::probe {

struct MakeModelOptions {
    std::string shape;   // tiny, 0.8b, 2b, 4b, 9b, 27b
    std::string format;  // bf16; nvfp4 (ModelOpt's layout, W4A4, FP8 KV scales, LM head and MTP layer quantised)
    std::string out_dir;
    uint64_t seed = 1;
    std::string tokenizer_path;      // tokenizer.json to copy, empty = none; its size becomes the vocabulary of a tiny model
    std::string chat_template_path;  // copied as chat_template.jinja, empty = none
};

// Writes the folder, streaming: memory does not depend on the shape. The same options give the same bytes. config.json is written
// last, so that an interrupted run leaves no folder that looks complete. Errors: an unknown shape or format, a folder that
// already holds a config.json, a tokenizer that does not fit the shape's vocabulary, a full disk.
Status make_model(const MakeModelOptions& options);

}  // namespace espalier::probe
