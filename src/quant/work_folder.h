// What an unfinished run keeps beside its output, so that it can go on: <destination>/.quantize with a progress file, replaced
// atomically after each step, and the hidden rows before and after the current layer.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "quant/maxima.h"
#include "quant/row_file.h"

namespace espalier::quant {

class WorkFolder {
public:
    // How far the run is. Later steps imply earlier ones.
    struct Progress {
        int32_t layers_done = -1;  // of the calibration; -1: not even the embedding
        bool final_done = false;   // the final norm
        bool mtp_done = false;
        bool is_written = false;  // the checkpoint is complete, the report is not
        Maxima maxima;
    };

    // Creates the folder, or goes on with it when `resume`. `key` says what the run depends on. Errors: invalid_input when the
    // destination holds something else, an unfinished run without `resume`, or one with another key.
    static Result<WorkFolder> open(const std::string& destination, const Json& key, bool resume);

    const std::string& destination() const { return destination_; }
    Progress& progress() { return progress_; }
    Status save() const;
    // Rows after layer `layer` (-1 = embedding); two files take turns.
    Result<RowFile> layer_rows(int32_t layer, int64_t width) const;
    Result<RowFile> final_rows(int64_t width) const;
    // The same for the quantised model.
    Result<RowFile> quantised_rows(int32_t layer, int64_t width) const;
    // Removes everything: the run is complete.
    void remove() const;

private:
    WorkFolder(std::string destination, Json key) : destination_(std::move(destination)), key_(std::move(key)) {}
    std::string path(const std::string& name) const { return destination_ + "/.quantize/" + name; }
    Status load();

    std::string destination_;
    Json key_;
    Progress progress_;
};

}  // namespace espalier::quant
