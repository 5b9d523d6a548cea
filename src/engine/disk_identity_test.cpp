#include "engine/disk_identity.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "checkpoint/reference_checkpoint.h"
#include "engine/load.h"

namespace espalier::engine {
namespace {

namespace fs = std::filesystem;

// A few bytes between the samples, as when a model is quantised again with other scales: sizes and sampled bytes stay the same.
TEST(DiskIdentity, AChangeBetweenTheSamplesChangesTheModelHash) {
    const fs::path folder = fs::temp_directory_path() / ("espalier_identity_" + std::to_string(getpid()));
    fs::remove_all(folder);
    fs::copy(checkpoint::reference_checkpoint("tiny_a"), folder, fs::copy_options::recursive);
    // A file of which only samples are read.
    const fs::path large = folder / "more.safetensors";
    std::ofstream(large, std::ios::binary) << std::string(8 << 20, 'x');
    ModelOptions options;
    options.path = checkpoint::reference_checkpoint("tiny_a");
    options.n_threads = 1;
    auto loaded = load_model(options);
    ASSERT_TRUE(loaded.has_value()) << loaded.error().message;

    const auto before = disk_identity(folder.string(), *loaded->model, "template");
    ASSERT_TRUE(before.has_value()) << before.error().message;
    const auto again = disk_identity(folder.string(), *loaded->model, "template");
    EXPECT_EQ(before->model_hash, again->model_hash);

    std::fstream file(large, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(20'000);
    file.put('y');
    file.close();
    const auto after = disk_identity(folder.string(), *loaded->model, "template");
    EXPECT_NE(before->model_hash, after->model_hash);
    fs::remove_all(folder);
}

}  // namespace
}  // namespace espalier::engine
