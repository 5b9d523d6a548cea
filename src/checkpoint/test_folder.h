// For tests: a folder that disappears, and checkpoints of a few small tensors in it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "checkpoint/writer.h"

namespace espalier::checkpoint {

class TestFolder {
public:
    TestFolder() {
        const auto* info = testing::UnitTest::GetInstance()->current_test_info();
        path_ = std::filesystem::temp_directory_path() /
                (std::string("espalier-") + info->test_suite_name() + "-" + info->name() + "-" + std::to_string(::getpid()));
        std::filesystem::remove_all(path_);
        std::filesystem::create_directories(path_);
    }
    ~TestFolder() { std::filesystem::remove_all(path_); }
    TestFolder(const TestFolder&) = delete;
    TestFolder& operator=(const TestFolder&) = delete;

    std::string path() const { return path_.string(); }
    std::string path(const std::string& name) const { return (path_ / name).string(); }
    void write(const std::string& name, std::string_view text) const {
        std::ofstream(path(name), std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
    }
    std::string read(const std::string& name) const {
        std::ifstream file(path(name), std::ios::binary);
        return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    }

private:
    std::filesystem::path path_;
};

inline TensorToWrite make_tensor(std::string name, Dtype dtype, std::vector<int64_t> shape, uint8_t fill = 0) {
    size_t bytes = dtype_bytes(dtype);
    for (const int64_t extent : shape) bytes *= static_cast<size_t>(extent);
    return tensor_from_bytes(std::move(name), dtype, std::move(shape), std::vector<std::byte>(bytes, std::byte{fill}));
}

inline TensorToWrite make_floats(std::string name, std::vector<int64_t> shape, std::vector<float> values) {
    return tensor_from_bytes(std::move(name), Dtype::f32, std::move(shape), std::as_bytes(std::span(values)));
}

// The tensors of one linear module, each layout as its exporter writes it; 0x38 is 1.0 in E4M3.
inline std::vector<TensorToWrite> nvfp4_module(const std::string& name, int64_t n, int64_t k) {
    return {make_floats(name + ".weight_scale_2", {}, {0.5f}), make_floats(name + ".input_scale", {}, {0.25f}),
            make_tensor(name + ".weight_scale", Dtype::f8_e4m3, {n, k / 16}, 0x38),
            make_tensor(name + ".weight", Dtype::u8, {n, k / 2}, 0x21)};
}

inline std::vector<TensorToWrite> nvfp4_packed_module(const std::string& name, int64_t n, int64_t k) {
    return {make_floats(name + ".weight_global_scale", {1}, {2.0f}), make_floats(name + ".input_global_scale", {1}, {4.0f}),
            make_tensor(name + ".weight_scale", Dtype::f8_e4m3, {n, k / 16}, 0x38),
            make_tensor(name + ".weight_packed", Dtype::u8, {n, k / 2}, 0x21)};
}

inline std::vector<TensorToWrite> fp8_module(const std::string& name, int64_t n, int64_t k, const std::string& scale,
                                             std::vector<int64_t> scale_shape) {
    size_t n_scales = 1;
    for (const int64_t extent : scale_shape) n_scales *= static_cast<size_t>(extent);
    return {make_floats(name + "." + scale, std::move(scale_shape), std::vector<float>(n_scales, 0.5f)),
            make_tensor(name + ".weight", Dtype::f8_e4m3, {n, k}, 0x38)};
}

inline void append(std::vector<TensorToWrite>& all, const std::vector<TensorToWrite>& more) {
    all.insert(all.end(), more.begin(), more.end());
}

// Takes away or replaces the tensor of that name.
inline void erase_tensor(std::vector<TensorToWrite>& tensors, std::string_view name) {
    std::erase_if(tensors, [&](const auto& tensor) { return tensor.name == name; });
}
inline void replace_tensor(std::vector<TensorToWrite>& tensors, TensorToWrite tensor) {
    erase_tensor(tensors, tensor.name);
    tensors.push_back(std::move(tensor));
}

}  // namespace espalier::checkpoint
