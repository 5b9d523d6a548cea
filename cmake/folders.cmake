# espalier_folder(name [DEPS folders] [LIBS targets]): the library, test and micro-benchmark of src/<name>.
#
# Files are found by name, so that adding one needs no edit here:
#   x.cpp                      into library espalier_<name>
#   x_test.cpp, x_ref.cpp      into executable <name>_test   (x_ref.cpp: slow oracles, never in production)
#   x_bench.cpp                into executable <name>_bench  (with x_ref.cpp)
#   x_avx2.cpp, x_avx512.cpp … into the library, compiled for that instruction set and nothing above it

set(ESPALIER_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi -mbmi2 -mno-avx512f)
set(ESPALIER_FLAGS_avxvnni -mavx2 -mfma -mf16c -mbmi -mbmi2 -mavxvnni -mno-avx512f)
set(ESPALIER_FLAGS_avx512 -mavx2 -mfma -mf16c -mbmi -mbmi2 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512cd -mavx512vnni
                          -mprefer-vector-width=512)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # gcc 12 takes the deliberately undefined operand of its own AVX-512 intrinsics for an uninitialised variable.
  list(APPEND ESPALIER_FLAGS_avx512 -Wno-maybe-uninitialized -Wno-uninitialized)
endif()
set(ESPALIER_FLAGS_amx ${ESPALIER_FLAGS_avx512} -mavx512bf16 -mamx-tile -mamx-int8 -mamx-bf16)

include(${CMAKE_CURRENT_LIST_DIR}/precompiled.cmake)

# What scripts/test.py and scripts/bench.sh build.
add_custom_target(unit_tests)
add_custom_target(micro_benchmarks)

function(espalier_folder name)
  cmake_parse_arguments(arg "" "" "DEPS;LIBS" ${ARGN})
  set(dir ${CMAKE_SOURCE_DIR}/src/${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${dir}/*.cpp)
  set(tests ${sources})
  set(benches ${sources})
  set(oracles ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER benches INCLUDE REGEX "_bench\\.cpp$")
  list(FILTER oracles INCLUDE REGEX "_ref\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "_(test|bench|ref)\\.cpp$")
  foreach(isa avx2 avxvnni avx512 amx)
    set(isa_sources ${sources})
    list(FILTER isa_sources INCLUDE REGEX "_${isa}\\.cpp$")
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
      # -fno-exceptions: nothing may unwind through a kernel, and the weak reference to the personality routine goes.
      set_source_files_properties(${isa_sources} PROPERTIES COMPILE_OPTIONS "${ESPALIER_FLAGS_${isa}};-fno-exceptions;$<IF:$<CONFIG:Release>,-O3,-O2>"
                                  INTERPROCEDURAL_OPTIMIZATION OFF SKIP_PRECOMPILE_HEADERS ON)
    else()
      list(REMOVE_ITEM sources ${isa_sources})
    endif()
  endforeach()
  list(TRANSFORM arg_DEPS PREPEND espalier_ OUTPUT_VARIABLE deps)
  set(lib espalier_${name})
  if(NOT sources)
    add_library(${lib} INTERFACE)
    target_link_libraries(${lib} INTERFACE espalier_options ${deps} ${arg_LIBS})
  else()
    add_library(${lib} STATIC ${sources})
    target_link_libraries(${lib} PUBLIC espalier_options ${deps} ${arg_LIBS})
  endif()
  if(sources)
    # Folders that run little code, but much of it templates of libraries: -O0 builds their checked forms faster.
    set(level "")
    if(name MATCHES "^(server|bench|hub|quant|probe|checkpoint)$" AND CMAKE_BUILD_TYPE STREQUAL "Debug")
      set(level -O0)
    elseif(name MATCHES "^(bench|hub|probe)$" AND CMAKE_BUILD_TYPE STREQUAL "Release")
      set(level -O1)
    endif()
    espalier_build_options(${lib} library "${level}")
  endif()
  if(ESPALIER_TESTS AND tests)
    add_executable(${name}_test ${tests} ${oracles})
    target_link_libraries(${name}_test PRIVATE ${lib} GTest::gtest GTest::gmock GTest::gtest_main)
    target_compile_definitions(${name}_test PRIVATE ESPALIER_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    # The code under test is optimised, its tests need not be: a fifth of the build time, a third under sanitizers. The oracles of
    # kernels/ are loops that would get slow.
    if(name STREQUAL "kernels" OR CMAKE_BUILD_TYPE STREQUAL "Release")
      espalier_build_options(${name}_test test -O1)
    else()
      espalier_build_options(${name}_test test -O0)
    endif()
    add_test(NAME ${name} COMMAND ${name}_test --gtest_brief=1)
    set_tests_properties(${name} PROPERTIES LABELS fast TIMEOUT 600)
    add_dependencies(unit_tests ${name}_test)
  endif()
  if(ESPALIER_BENCHMARKS AND benches)
    add_executable(${name}_bench ${benches} ${oracles})
    target_link_libraries(${name}_bench PRIVATE ${lib} benchmark::benchmark_main)
    add_dependencies(micro_benchmarks ${name}_bench)
  endif()
endfunction()
