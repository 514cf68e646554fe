# For the CMake project of a user: registers the cases of matrices with CTest (docs/ci.md).
#
#   include(<prefix>/share/cp-pool/cmake/CpPoolTests.cmake)
#   cp_pool_add_matrix(<name> [MATRIX <name or file>...] [SIZE <size>] [FILTER <expression>...]
#                      [SHARDS <number> | PER_CASE] [ARGS <options of cp-pool run>...]
#                      [PROCESSORS <number>] [LABELS <label>...])
#
# Adds one test <name>, which runs all cases on warm pools and writes a JUnit report <name>.xml into the current binary
# folder. With SHARDS, adds that number of tests, <name>.1 and so on, each of which runs a part of the cases. With
# PER_CASE, adds a test for each case when ctest starts, named by the ID of the case. Each such test starts its own
# pool, or uses one of a service (ARGS --service); PROCESSORS and LABELS cannot be given with PER_CASE.
#
# The program is CP_POOL_EXECUTABLE, else the cp-pool of this installation, else the one in PATH.
find_program(CP_POOL_EXECUTABLE cp-pool HINTS "${CMAKE_CURRENT_LIST_DIR}/../../../bin")

function(cp_pool_add_matrix name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "PER_CASE" "SIZE;SHARDS;PROCESSORS" "MATRIX;FILTER;ARGS;LABELS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "cp_pool_add_matrix(${name}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(arg_PER_CASE AND arg_SHARDS)
    message(FATAL_ERROR "cp_pool_add_matrix(${name}): SHARDS and PER_CASE contradict each other")
  endif()
  # CTest learns of the tests of PER_CASE when it starts, with the labels that cp-pool list writes.
  if(arg_PER_CASE AND (DEFINED arg_LABELS OR DEFINED arg_PROCESSORS))
    message(FATAL_ERROR "cp_pool_add_matrix(${name}): LABELS and PROCESSORS are for tests of whole matrices, not for "
                        "PER_CASE, whose tests have the labels of their cases")
  endif()
  if(NOT CP_POOL_EXECUTABLE)
    message(FATAL_ERROR "cp_pool_add_matrix(${name}): there is no cp-pool; set CP_POOL_EXECUTABLE")
  endif()

  set(selection)
  foreach(matrix IN LISTS arg_MATRIX)
    if(matrix MATCHES "[/.]")  # a file, relative to this folder
      cmake_path(ABSOLUTE_PATH matrix BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
    endif()
    list(APPEND selection --matrix "${matrix}")
  endforeach()
  if(arg_SIZE)
    list(APPEND selection --size "${arg_SIZE}")
  endif()
  foreach(filter IN LISTS arg_FILTER)
    list(APPEND selection --filter "${filter}")
  endforeach()

  if(arg_PER_CASE)
    _cp_pool_add_cases("${name}" "${selection}" "${arg_ARGS}")
    return()
  endif()
  set(shards 1)
  if(arg_SHARDS)
    set(shards "${arg_SHARDS}")
  endif()
  foreach(shard RANGE 1 ${shards})
    set(test "${name}")
    set(part)
    if(arg_SHARDS)
      set(test "${name}.${shard}")
      set(part --shard "${shard}/${shards}")
    endif()
    add_test(NAME "${test}" WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
             COMMAND "${CP_POOL_EXECUTABLE}" run ${selection} ${part} --junit "${CMAKE_CURRENT_BINARY_DIR}/${test}.xml"
                     ${arg_ARGS})
    set_tests_properties("${test}" PROPERTIES LABELS "${arg_LABELS}")
    if(arg_PROCESSORS)
      set_tests_properties("${test}" PROPERTIES PROCESSORS "${arg_PROCESSORS}")
    endif()
  endforeach()
endfunction()

# The cases are listed whenever ctest starts, so that no new configuration is needed after the matrix has changed.
function(_cp_pool_add_cases name selection args)
  set(script "${CMAKE_CURRENT_BINARY_DIR}/${name}_cases.cmake")
  set(listed "${CMAKE_CURRENT_BINARY_DIR}/${name}_tests.cmake")
  set(words)
  foreach(word IN LISTS args)
    string(REPLACE "'" "'\\''" word "${word}")
    list(APPEND words "'${word}'")
  endforeach()
  list(JOIN words " " words)
  set(command "\"${CP_POOL_EXECUTABLE}\" list --format ctest")
  foreach(word IN LISTS selection)
    string(APPEND command " [==[${word}]==]")
  endforeach()
  if(words)
    string(APPEND command " [==[--test-args=${words}]==]")
  endif()
  file(WRITE "${script}"
       "execute_process(COMMAND ${command} OUTPUT_FILE \"${listed}\" RESULT_VARIABLE result ERROR_VARIABLE error)\n"
       "if(result EQUAL 0)\n"
       "  include(\"${listed}\")\n"
       "else()\n"
       "  add_test([==[${name}]==] \"${CMAKE_COMMAND}\" -E false)  # rather than no test at all\n"
       "  message(WARNING \"cp-pool list: \${error}\")\n"
       "endif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${script}")
endfunction()
