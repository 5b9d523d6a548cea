// For tests and the seeds of the fuzz target: the bytes of a GGUF file, piece by piece, right or wrong.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::checkpoint {

class GgufBuilder {
public:
    uint32_t version = 3;

    template <class T>
    static std::string number(T value) {
        std::string bytes(sizeof value, '\0');
        std::memcpy(bytes.data(), &value, sizeof value);
        return bytes;
    }
    static std::string text(std::string_view value) { return number<uint64_t>(value.size()) + std::string(value); }

    // An entry from the bytes that follow its key.
    GgufBuilder& entry(std::string_view key, uint32_t kind, std::string_view bytes) {
        entries_.push_back(text(key) + number(kind) + std::string(bytes));
        return *this;
    }
    GgufBuilder& u32(std::string_view key, uint32_t value) { return entry(key, 4, number(value)); }
    GgufBuilder& f32(std::string_view key, float value) { return entry(key, 6, number(value)); }
    GgufBuilder& string(std::string_view key, std::string_view value) { return entry(key, 8, text(value)); }

    // A tensor at the next place; extents as in the file, fastest first.
    GgufBuilder& tensor(std::string_view name, std::vector<uint64_t> extents, uint32_t type, std::string_view data) {
        tensor_at(name, std::move(extents), type, data_.size());
        data_ += data;
        data_.resize((data_.size() + kAlignment - 1) / kAlignment * kAlignment, '\0');
        return *this;
    }
    // A tensor that claims a place.
    GgufBuilder& tensor_at(std::string_view name, const std::vector<uint64_t>& extents, uint32_t type, uint64_t offset) {
        std::string info = text(name) + number(static_cast<uint32_t>(extents.size()));
        for (const uint64_t extent : extents) info += number(extent);
        infos_.push_back(info + number(type) + number(offset));
        return *this;
    }

    std::string header() const {
        std::string out = "GGUF" + number(version) + number<uint64_t>(infos_.size()) + number<uint64_t>(entries_.size());
        for (const auto& bytes : entries_) out += bytes;
        for (const auto& bytes : infos_) out += bytes;
        return out;
    }
    std::string build() const {
        std::string out = header();
        out.resize((out.size() + kAlignment - 1) / kAlignment * kAlignment, '\0');
        return out + data_;
    }

private:
    static constexpr size_t kAlignment = 32;
    std::vector<std::string> entries_;
    std::vector<std::string> infos_;
    std::string data_;
};

}  // namespace espalier::checkpoint
