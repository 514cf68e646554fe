# cp_pool_test(<name> LABEL <unit|integration|gpu|long|soak..> SOURCES <files> [LIBRARIES <targets>] [TIMEOUT <seconds>] [DISCOVER]
#              [TORCH])
# Adds a GoogleTest executable to ctest. DISCOVER registers each of its tests separately, for tests that wait and so gain
# from running side by side; only for executables that start in milliseconds, so for none that links LibTorch. The many
# tests of a unit that take no time run in one process: as many processes took longer than the tests. TORCH: the sources
# include LibTorch's headers.
include(GoogleTest)

cp_pool_define_precompiled(test OPTIMIZE O0 LIBRARIES nlohmann_json::nlohmann_json GTest::gmock fmt::fmt
                           HEADERS <nlohmann/json.hpp> <gmock/gmock.h> <gtest/gtest.h>
                           "${PROJECT_SOURCE_DIR}/driver/core/events.h")
if(CP_POOL_LIBTORCH)
  cp_pool_define_precompiled(torch OPTIMIZE O2 LIBRARIES LibTorch::cpu fmt::fmt HEADERS <ATen/core/Tensor.h>)
  cp_pool_define_precompiled(torch_test OPTIMIZE O0 LIBRARIES LibTorch::cpu GTest::gmock fmt::fmt
                             HEADERS <ATen/core/Tensor.h> <gmock/gmock.h> <gtest/gtest.h>)
endif()

# Tests are not optimised, since they mostly run once per build and optimising them costs more than it saves.
function(cp_pool_not_optimised)
  foreach(target ${ARGN})
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
  endforeach()
endfunction()

# Programs that only a machine with GPUs can run are built by the target gpu_programs and not by the target all.
add_custom_target(gpu_programs)
function(cp_pool_gpu_program name)
  set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  add_dependencies(gpu_programs ${name})
endfunction()

# Programs of which tools/test runs nothing are built by the target long_programs: those of the tests of label long or
# soak, and those that measure.
add_custom_target(long_programs)
function(cp_pool_long_program name)
  set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  add_dependencies(long_programs ${name})
endfunction()

function(cp_pool_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "DISCOVER;TORCH" "TIMEOUT" "LABEL;SOURCES;LIBRARIES")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 600)  # for tests that hang; many times what a slow and busy machine needs
  endif()
  add_executable(${name} ${arg_SOURCES})
  if(arg_LABEL STREQUAL gpu)  # so that a machine without a GPU does not build them
    cp_pool_gpu_program(${name})
  elseif("long" IN_LIST arg_LABEL OR "soak" IN_LIST arg_LABEL)
    cp_pool_long_program(${name})
  endif()
  target_link_libraries(${name} PRIVATE cp_options ${arg_LIBRARIES} fmt::fmt GTest::gmock GTest::gtest_main)
  cp_pool_not_optimised(${name})
  set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 10)
  if(arg_TORCH)
    cp_pool_use_precompiled(torch_test ${name})
  else()
    cp_pool_use_precompiled(test ${name})
  endif()
  # Tests and the workers that they start do not use the user's stored plans.
  set(environment CP_POOL_PLAN_STORE=off)
  list(JOIN arg_LABEL "\\;" labels)
  set(properties LABELS "${labels}" TIMEOUT ${arg_TIMEOUT})
  if(NOT arg_DISCOVER)
    # GTEST_BRIEF: a failure is not lost among hundreds of tests that passed.
    string(APPEND environment "\\;GTEST_BRIEF=1")
    # It takes seconds, so it starts before short tests even if ctest has no recorded times yet.
    list(APPEND properties COST 10)
  endif()
  list(APPEND properties ENVIRONMENT "${environment}")
  if(NOT arg_LABEL STREQUAL gpu)
    # Hides GPUs, so that the test is the same on every machine.
    list(APPEND properties ENVIRONMENT_MODIFICATION CUDA_VISIBLE_DEVICES=set:)
  endif()
  if(arg_DISCOVER)
    gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES ${properties})
  else()
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES ${properties})
  endif()
endfunction()

# cp_pool_divided_test(<name> OFTEN <variables> WHOLE <variables> TIMEOUT <seconds>) divides a test that takes long. The
# test runs with the environment variables OFTEN. A second test <name>_whole, which has the label long, runs with WHOLE.
function(cp_pool_divided_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "OFTEN;WHOLE")
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "CP_POOL_PLAN_STORE=off;${arg_OFTEN}")
  add_test(NAME ${name}_whole COMMAND ${name})
  set_tests_properties(${name}_whole PROPERTIES LABELS "integration;long" TIMEOUT ${arg_TIMEOUT} COST 100
                       ENVIRONMENT "CP_POOL_PLAN_STORE=off;${arg_WHOLE}"
                       ENVIRONMENT_MODIFICATION CUDA_VISIBLE_DEVICES=set:)
endfunction()
