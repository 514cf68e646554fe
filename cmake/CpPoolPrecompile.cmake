# Precompiled headers save a quarter of the time of a unit that uses LibTorch, and a third of that of a unit of the
# driver. Sources must still include what they use, since clang-tidy reads them without precompiled headers
# (tools/tidy). Builds with sanitizers or clang do not use them, since these are rare.
option(CP_POOL_PRECOMPILE "Use precompiled headers (g++, release)" ON)

set(CP_POOL_STANDARD_HEADERS
    <algorithm> <array> <chrono> <cstdint> <filesystem> <functional> <map> <memory> <optional> <span> <sstream> <string>
    <string_view> <utility> <variant> <vector> <fmt/format.h>)

# cp_pool_define_precompiled(<name> OPTIMIZE O0|O1|O2 HEADERS <headers> LIBRARIES <targets>) defines a precompiled
# header. cp_pool_use_precompiled(<name> <targets>) uses it for libraries and programs.
function(cp_pool_define_precompiled name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "OPTIMIZE" "HEADERS;LIBRARIES")
  if(NOT CP_POOL_PRECOMPILE OR CP_POOL_SANITIZE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/precompiled/${name}.cpp" CONTENT "")
  add_library(precompiled_${name} OBJECT "${CMAKE_BINARY_DIR}/precompiled/${name}.cpp")
  target_link_libraries(precompiled_${name} PRIVATE cp_options ${arg_LIBRARIES})
  # The level must be that of the units that use the header: at -O2, g++ 12 crashes on a header precompiled at -O1, and
  # the other way round the header saves nothing.
  target_compile_options(precompiled_${name} PRIVATE -${arg_OPTIMIZE})
  target_precompile_headers(precompiled_${name} PRIVATE ${CP_POOL_STANDARD_HEADERS} ${arg_HEADERS})
  if(CCACHE)
    # Only in depend mode does ccache compare headers with their comments. Otherwise it may return a header that was
    # precompiled with other comments, and g++, which compares whole files for #pragma once, includes the files again.
    list(TRANSFORM CMAKE_CXX_COMPILER_LAUNCHER PREPEND "CCACHE_DEPEND=1;" REGEX "^CCACHE_SLOPPINESS=" OUTPUT_VARIABLE launcher)
    set_target_properties(precompiled_${name} PROPERTIES CXX_COMPILER_LAUNCHER "${launcher}")
  endif()
endfunction()

function(cp_pool_use_precompiled name)
  if(NOT TARGET precompiled_${name})
    return()
  endif()
  foreach(target ${ARGN})
    target_precompile_headers(${target} REUSE_FROM precompiled_${name})
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "EXECUTABLE")  # -fPIC like the header, since CMake would use -fPIE
      set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)
    endif()
    # g++ 12 forgets that code of std::string is from a system header if it is precompiled (gcc PR 105651).
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread;-Wno-restrict>)
  endforeach()
endfunction()
