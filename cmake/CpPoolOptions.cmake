# Sets language level, warnings, sanitizers and output folders for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# Several sources of a target are compiled as one unit, since otherwise nearly half the time of a full build goes to
# reading the same headers and instantiating the same templates again. Names in anonymous namespaces must therefore
# differ within a target.
option(CP_POOL_UNITY "Compile several sources at a time" ON)
set(CMAKE_UNITY_BUILD ${CP_POOL_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 12)

# Driver and worker mostly wait, so -O2 would make their build a sixth longer without making them faster. cp_core, which
# computes, adds -O2.
# -g1 gives line numbers to stacks of exceptions, crashes and deadlines. It adds about 1 MiB per unit and hardly any
# time.
set(CMAKE_CXX_FLAGS_RELEASE "-O1 -g1 -DNDEBUG")
# For the sanitizer presets: line numbers in reports, and a short build.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")

set(CP_POOL_SANITIZE "" CACHE STRING "Value of -fsanitize= for every target, e.g. address,undefined; empty for none")

add_library(cp_options INTERFACE)
target_include_directories(cp_options INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_definitions(cp_options INTERFACE CP_POOL_VERSION="${PROJECT_VERSION}")
# Warnings are errors only with the compilers that the build is tested with, since another one may have other warnings.
set(_tried OFF)
if((CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION MATCHES "^1[23]\\.") OR
   (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION MATCHES "^19\\."))
  set(_tried ON)
endif()
option(CP_POOL_WERROR "Warnings are errors" ${_tried})

target_compile_options(cp_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Keeps g++ from collecting garbage, which took a seventh of the time of a unit. A unit needs less memory than this
  # (in KiB).
  target_compile_options(cp_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1048576>)
endif()
if(CP_POOL_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ takes every source of a batch for a header.
  target_compile_options(cp_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()
# Without -Wpedantic, which rejects the line markers that nvcc writes.
target_compile_options(cp_options INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
if(CP_POOL_WERROR)
  target_compile_options(cp_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>
                                              $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Werror;-Werror=all-warnings>)
endif()
if(CP_POOL_SANITIZE)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # With sanitizers, g++ 12 warns that members of std::regex are uninitialized.
    target_compile_options(cp_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
  endif()
  # The vptr checks would need RTTI of libraries that are not instrumented.
  target_compile_options(cp_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${CP_POOL_SANITIZE};-fno-sanitize=vptr;-fno-sanitize-recover=all;-fno-omit-frame-pointer>)
  target_link_options(cp_options INTERFACE -fsanitize=${CP_POOL_SANITIZE} -fno-sanitize=vptr)
  # Makes libstdc++ check what sanitizers do not see, such as the value of an empty std::optional.
  target_compile_definitions(cp_options INTERFACE _GLIBCXX_ASSERTIONS)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # Without these settings, ccache does not cache units that use a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros "${CCACHE}")
endif()
