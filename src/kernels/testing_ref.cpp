#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <iterator>
#include <random>

#include "base/check.h"
#include "kernels/testing.h"

namespace espalier::kernels {

std::vector<KernelVariant> variants_of(std::string_view op) {
    std::vector<KernelVariant> found;
    for (const KernelVariant& variant : kernel_variants()) {
        if (variant.op == op) found.push_back(variant);
    }
    return found;
}

bool is_available(Isa isa) {
    const std::vector<Isa> available = available_isas();
    return std::find(available.begin(), available.end(), isa) != available.end();
}

const KernelTable& scalar_table() {
    return kernel_table(Isa::scalar);
}

std::ostream& operator<<(std::ostream& out, const KernelVariant& variant) {
    return out << variant_name(variant);
}

std::string variant_name(const KernelVariant& variant) {
    return std::string(variant.op) + "_" + std::string(to_string(variant.isa));
}

std::vector<float> normal_values(int64_t n, uint64_t seed, float deviation) {
    std::mt19937_64 engine(seed);
    std::normal_distribution<float> distribution(0.0f, deviation);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = distribution(engine);
    return values;
}

std::vector<float> uniform_values(int64_t n, uint64_t seed, float low, float high) {
    std::mt19937_64 engine(seed);
    std::uniform_real_distribution<float> distribution(low, high);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = distribution(engine);
    return values;
}

std::vector<float> extreme_values(int64_t n, uint64_t seed) {
    constexpr float kSpecial[] = {0.0f,  -0.0f,    1e-45f, -3e-40f, 1.17549435e-38f, -1e-20f, 1e-6f, 1.0f,
                                  -1.0f, 87.2999f, -88.0f, 90.0f,   -104.0f,         1e4f,    -3e8f, 2e15f};
    std::mt19937_64 engine(seed);
    std::vector<float> values = normal_values(n, seed + 1);
    for (float& value : values) {
        if (engine() % 2 == 0) value = kSpecial[engine() % std::size(kSpecial)];
    }
    return values;
}

int64_t first_difference(std::span<const float> a, std::span<const float> b) {
    CHECK(a.size() == b.size(), "first_difference compares vectors of one size");
    for (size_t i = 0; i < a.size(); ++i) {
        if (std::isnan(a[i]) && std::isnan(b[i])) continue;
        if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) return static_cast<int64_t>(i);
    }
    return -1;
}

double relative_rms(std::span<const float> a, std::span<const double> b) {
    double error = 0;
    double size = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        error += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    return std::sqrt(error / size);
}

double max_abs_difference(std::span<const float> a, std::span<const double> b) {
    double worst = 0;
    for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
    return worst;
}

namespace {

std::string read_bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    CHECK(file.good(), "cannot open a golden file");
    return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

}  // namespace

Json read_json(const std::string& path) {
    return *parse_json(read_bytes(path), path);
}

std::vector<float> read_npy_f32(const std::string& path) {
    const std::string bytes = read_bytes(path);
    CHECK(bytes.size() > 10 && bytes.compare(1, 5, "NUMPY") == 0, "not an .npy file");
    const size_t header = 10 + static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]);
    CHECK(bytes.find("'<f4'") < header && bytes.find("'fortran_order': False") < header, "not float32 in C order");
    std::vector<float> values((bytes.size() - header) / sizeof(float));
    std::copy_n(bytes.data() + header, values.size() * sizeof(float), reinterpret_cast<char*>(values.data()));
    return values;
}

}  // namespace espalier::kernels
