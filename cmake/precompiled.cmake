# espalier_build_options(target kind level): the target's optimisation level ("" leaves that of the build type), and headers parsed
# once for all targets of its kind and level.
#
# Tests always, which saves a quarter of their time; libraries in sanitized builds only, where it saves a third. The release build
# reads every header of a library where it is included, so that a file that forgets one does not build.
#
# kind: library or test. Targets of one kind and level share their options; headers parsed with other ones are refused.

set(ESPALIER_HEADERS_library <algorithm> <array> <atomic> <condition_variable> <cstdint> <functional> <map> <memory> <mutex> <optional>
                             <span> <string> <string_view> <unordered_map> <utility> <variant> <vector>
                             <fmt/format.h> <nlohmann/json.hpp>)
set(ESPALIER_HEADERS_test ${ESPALIER_HEADERS_library} <random> <thread> <gmock/gmock.h> <gtest/gtest.h>)

function(espalier_build_options target kind level)
  if(level)
    target_compile_options(${target} PRIVATE ${level})
  endif()
  if(ESPALIER_FUZZ OR (kind STREQUAL "library" AND NOT ESPALIER_SANITIZE))
    return()
  endif()
  set(headers headers_${kind}${level})
  if(NOT TARGET ${headers})
    set(source ${CMAKE_BINARY_DIR}/${headers}.cpp)
    file(GENERATE OUTPUT ${source} CONTENT "// Carries the precompiled headers.\n")
    add_library(${headers} OBJECT ${source})
    target_link_libraries(${headers} PRIVATE espalier_options fmt::fmt nlohmann_json::nlohmann_json Threads::Threads)
    if(level)
      target_compile_options(${headers} PRIVATE ${level})
    endif()
    if(kind STREQUAL "test")  # a program: -fPIE, not -fPIC
      set_target_properties(${headers} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${headers} PRIVATE -fPIE)
      target_link_libraries(${headers} PRIVATE GTest::gtest GTest::gmock)
    endif()
    target_precompile_headers(${headers} PRIVATE ${ESPALIER_HEADERS_${kind}})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # gcc 12's false alarms about string concatenation are no longer those of a system header then.
    target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-stringop-overflow)
  endif()
endfunction()
