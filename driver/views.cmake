# The event stream's views (reporters/) and the command line (cli/).
add_library(cp_reporters STATIC
  reporters/events_json.cpp
  reporters/failure_text.cpp
  reporters/fan_out.cpp
  reporters/jsonl_sink.cpp
  reporters/junit_sink.cpp
  reporters/live_line.cpp
  reporters/output_file.cpp
  reporters/summary.cpp
  reporters/terminal_sink.cpp
  reporters/text_format.cpp)
target_link_libraries(cp_reporters PUBLIC cp_driver PRIVATE fmt::fmt pugixml::pugixml)

cp_pool_test(reporters_test LABEL unit DISCOVER
  SOURCES
    reporters/events_json_test.cpp
    reporters/failure_text_test.cpp
    reporters/fan_out_test.cpp
    reporters/jsonl_sink_test.cpp
    reporters/junit_sink_test.cpp
    reporters/live_line_test.cpp
    reporters/output_file_test.cpp
    reporters/summary_test.cpp
    reporters/terminal_sink_test.cpp
    reporters/text_format_test.cpp
  LIBRARIES cp_reporters)
target_compile_definitions(reporters_test PRIVATE
  CP_POOL_CHECK_JUNIT="${CMAKE_CURRENT_SOURCE_DIR}/reporters/check_junit.py")
