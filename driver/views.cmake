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
