// For tests of any folder: where a reference checkpoint of tests/golden/model/ckpt lies, unpacked.
//
// The archives are unpacked on first use into build/golden of the source tree, by CMake, which every build has. The folder's name
// carries the archive's size, so that a changed archive is unpacked anew; a rename makes it appear complete or not at all, since
// tests of several folders run at once. Needs the macro ESPALIER_SOURCE_DIR, which test targets define.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/check.h"

namespace espalier::checkpoint {

// `name`: "tiny_a". Aborts when the archive is missing or cannot be unpacked.
inline std::string reference_checkpoint(const std::string& name) {
    namespace fs = std::filesystem;
    const fs::path source = ESPALIER_SOURCE_DIR;
    const fs::path archive = source / "tests/golden/model/ckpt" / (name + ".tar.xz");
    CHECK(fs::exists(archive), ("no archive " + archive.string()).c_str());
    const fs::path target = source / "build/golden" / (name + "-" + std::to_string(fs::file_size(archive)));
    if (!fs::exists(target / name / "config.json")) {
        const fs::path partial = source / "build/golden" / (".partial-" + name + "-" + std::to_string(::getpid()));
        fs::create_directories(partial);
        const std::string command = "cd '" + partial.string() + "' && cmake -E tar xf '" + archive.string() + "'";
        CHECK(std::system(command.c_str()) == 0, ("cannot unpack " + archive.string()).c_str());
        std::error_code someone_was_faster;
        fs::rename(partial, target, someone_was_faster);
        if (someone_was_faster) fs::remove_all(partial);
    }
    return (target / name).string();
}

}  // namespace espalier::checkpoint
