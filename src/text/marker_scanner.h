// Finds a tool format's markers in plain text. For models whose tokenizer has no added token for a marker, and for text from
// files; where added tokens exist, the token id says better what is a marker.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/tool_format.h"

namespace espalier::text {

struct MarkedRun {
    std::string text;
    bool is_marker = false;
};

class MarkerScanner {
public:
    // The format must outlive the scanner.
    explicit MarkerScanner(const ToolFormat& format);

    // Appends the runs that became certain; holds back at most the longest marker less one byte.
    void push(std::string_view text, std::vector<MarkedRun>& out);
    // The text ended: what was held back is plain.
    void flush(std::vector<MarkedRun>& out);

private:
    std::vector<std::string_view> markers_;
    std::string held_;
};

}  // namespace espalier::text
