// Streaming JSON transcoder: takes the bytes of one JSON value as a model writes it and appends the same value in the spelling of
// Python's json.dumps (", " and ": ", digits and escapes as written).
//
// Strict input passes through; what is not JSON is repaired so that the output, once closed, always is JSON:
// - Python spellings (True, None, single quotes, tuples, trailing commas) are translated; is_python tells.
// - A quote inside a string that is not followed by one of , } ] : is taken as text, bare words become strings, raw control
//   characters are escaped, wrong or missing closers are fixed, the rest is dropped; is_broken tells.
// Strings are released as they come (a quote waits for what follows it), scalars when complete, keys with their value, so that
// close() at any point leaves JSON without inventing a value. Linear in the input; memory = nesting depth + longest scalar or
// key.
#pragma once

#include <string>
#include <string_view>

namespace espalier::text {

// The grammar of JSON numbers.
bool is_json_number(std::string_view text);

class JsonTranscoder {
public:
    enum class Root { none, object, array, string, scalar };

    // Takes one byte. False: the value ended before it (root strings and scalars end at , } ] or a line break).
    bool feed(char c, std::string& out);
    // A byte that is text even if it looks like JSON structure; only inside a string.
    void feed_text(std::string_view text, std::string& out);
    // The input ended: closes what is open.
    void close(std::string& out);

    bool is_done() const { return phase_ == Phase::done; }
    // Inside a string whose end is not in sight.
    bool in_string() const { return phase_ == Phase::string || phase_ == Phase::escape || phase_ == Phase::unicode; }
    Root root() const { return root_; }
    bool is_python() const { return is_python_; }
    bool is_broken() const { return is_broken_; }

private:
    enum class Phase { value, string, escape, unicode, quote_held, scalar, key, colon, after_value, done };

    bool step(char c, std::string& out);
    bool begin_value(char c, std::string& out);
    void begin_container(char kind, std::string& out);
    void begin_string(char quote);
    void before_value(std::string& out);
    void string_char(char c, std::string& out);
    void escape_char(char c, std::string& out);
    void flush_bad_unicode(std::string& out);
    void end_string(std::string& out);
    void end_scalar(std::string& out);
    void key_char(char c, std::string& out);
    void after_value_char(char c, std::string& out);
    void close_container(char c, std::string& out);
    void pop(std::string& out);
    void value_ended();
    std::string& text_target(std::string& out) { return is_key_ ? key_ : out; }

    Phase phase_ = Phase::value;
    Root root_ = Root::none;
    bool is_python_ = false;
    bool is_broken_ = false;
    std::string stack_;       // '{' and '[' of the open containers
    int n_objects_ = 0;       // of them
    bool has_items_ = false;  // the innermost container has an item already
    bool has_comma_ = false;  // a comma waits for the next item
    bool is_key_ = false;     // the current string or scalar is a key
    std::string key_;         // escaped, without quotes; written with its value
    bool has_key_ = false;
    char quote_ = '"';
    std::string held_;          // white space after a quote, hex digits, or the scalar so far
    bool is_hex_byte_ = false;  // Python's \xNN instead of \uNNNN
};

}  // namespace espalier::text
