# Compiler settings shared by every target, and the libraries from the system.
include(GNUInstallDirs)

# -O3 where it pays, in the arithmetic (folders.cmake); the rest builds faster with -O2.
string(REPLACE "-O3" "-O2" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")
if(NOT ESPALIER_SANITIZE)
  string(APPEND CMAKE_CXX_FLAGS_DEBUG " -O1")
endif()

add_library(espalier_options INTERFACE)
target_include_directories(espalier_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
# -ffp-contract=off: a multiply and an add are fused where the code says so and nowhere else; otherwise the same formula
# would give different bits in files compiled for different instruction sets.
target_compile_options(espalier_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers
                                                  -ffp-contract=off)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(espalier_options INTERFACE -march=x86-64-v2)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # gcc 12 warns about std::string concatenation that cannot overlap (its bug 105329) and about members of a std::variant that
  # are never read.
  target_compile_options(espalier_options INTERFACE -Wno-restrict -Wno-maybe-uninitialized)
endif()
if(ESPALIER_WERROR)
  target_compile_options(espalier_options INTERFACE -Werror)
endif()
if(ESPALIER_SANITIZE)
  target_compile_options(espalier_options INTERFACE -fsanitize=${ESPALIER_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_compile_definitions(espalier_options INTERFACE ESPALIER_SANITIZED)
  target_link_options(espalier_options INTERFACE -fsanitize=${ESPALIER_SANITIZE})
endif()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(curl REQUIRED IMPORTED_TARGET libcurl)
pkg_check_modules(crypto REQUIRED IMPORTED_TARGET libcrypto)
find_package(Boost 1.74 REQUIRED)
find_package(CLI11 REQUIRED)
if(ESPALIER_TESTS)
  find_package(GTest REQUIRED)
endif()
if(ESPALIER_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()
