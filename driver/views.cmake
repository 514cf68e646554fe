# The views of the event stream (report/) and the command line (cli/).
add_library(cp_report STATIC
  log/events_json.cpp
  log/run_log.cpp
  log/run_report.cpp
  report/diagnosis_text.cpp
  report/case_text.cpp
  report/github_annotations.cpp
  report/html_document.cpp
  report/html_report.cpp
  report/junit_report.cpp
  report/live_line.cpp
  report/markdown_report.cpp
  report/notices.cpp
  report/output_file.cpp
  report/search_text.cpp
  report/pictures/exchange_svg.cpp
  report/pictures/features_table.cpp
  report/pictures/mask_svg.cpp
  report/pictures/strip_svg.cpp
  report/pictures/svg.cpp
  report/pictures/time_axis.cpp
  report/pictures/timeline_svg.cpp
  report/summary.cpp
  report/terminal_sink.cpp
  report/text_format.cpp
  report/time_tables.cpp
  report/trace_report.cpp
  )
target_link_libraries(cp_report PUBLIC cp_driver PRIVATE fmt::fmt pugixml::pugixml)

cp_pool_test(report_test LABEL unit
  SOURCES
    log/event_reading_test.cpp
    log/events_json_test.cpp
    log/run_report_test.cpp
    report/diagnosis_text_test.cpp
    report/case_text_test.cpp
    report/github_annotations_test.cpp
    report/html_report_test.cpp
    report/junit_report_test.cpp
    report/live_line_test.cpp
    report/markdown_report_test.cpp
    report/notices_test.cpp
    report/output_file_test.cpp
    report/search_text_test.cpp
    report/pictures/mask_svg_test.cpp
    report/pictures/exchange_svg_test.cpp
    report/pictures/time_axis_test.cpp
    report/pictures/timeline_svg_test.cpp
    report/summary_test.cpp
    report/terminal_sink_test.cpp
    report/text_format_test.cpp
    report/time_tables_test.cpp
    report/trace_report_test.cpp
  LIBRARIES cp_report fmt::fmt pugixml::pugixml)
target_compile_definitions(report_test PRIVATE
  CP_POOL_CHECK_TRACE="${CMAKE_CURRENT_SOURCE_DIR}/testing/check_trace.py"
  CP_POOL_CHECK_JUNIT="${CMAKE_CURRENT_SOURCE_DIR}/testing/check_junit.py"
  CP_POOL_SOURCE_DIR="${PROJECT_SOURCE_DIR}")

# --- Conformance ------------------------------------------------------------------------------------------------------
add_library(cp_conformance STATIC
  conformance/conformance.cpp
  conformance/conformance_cases.cpp
  conformance/conformance_faults.cpp
  conformance/session.cpp)
target_link_libraries(cp_conformance PUBLIC cp_driver PRIVATE cp_report fmt::fmt)

# --- Command line -----------------------------------------------------------------------------------------------------
# The sources that include CLI11. It takes long to compile and runs once, so these are not optimised; all other sources only
# declare its classes.
add_library(cp_cli_parser OBJECT
  cli/commands/command_line.cpp
  cli/commands/config_command.cpp
  cli/completion/candidates.cpp
  cli/config/configuration.cpp
  cli/man_page.cpp
  cli/option_kinds.cpp
  cli/service_use.cpp)
target_link_libraries(cp_cli_parser PUBLIC cp_report PRIVATE fmt::fmt CLI11::CLI11)
cp_pool_not_optimised(cp_cli_parser)

add_library(cp_cli STATIC
  $<TARGET_OBJECTS:cp_cli_parser>
  cli/device.cpp
  cli/execution.cpp
  cli/execution_options.cpp
  cli/output_check.cpp
  cli/program_paths.cpp
  cli/shell_words.cpp
  cli/config/case_overrides.cpp
  cli/config/config_file.cpp
  cli/config/test_environment.cpp
  cli/status_requests.cpp
  cli/worker_command.cpp
  cli/commands/completion_command.cpp
  cli/commands/conformance_command.cpp
  cli/commands/diff_command.cpp
  cli/commands/doctor_command.cpp
  cli/commands/explain_command.cpp
  cli/commands/explanation.cpp
  cli/commands/list_command.cpp
  cli/commands/replay_command.cpp
  cli/commands/report_command.cpp
  cli/error_reporting.cpp
  cli/commands/run_command.cpp
  cli/commands/runs_command.cpp
  cli/commands/search_command.cpp
  cli/commands/serve_command.cpp
  cli/commands/shell_command.cpp
  cli/commands/status_command.cpp
  cli/commands/submit_command.cpp
  cli/history/earlier_run.cpp
  cli/history/found_cases.cpp
  cli/history/merged_runs.cpp
  cli/history/run_diff.cpp
  cli/history/run_records.cpp
  cli/select/selection.cpp
  cli/select/shard.cpp
  cli/select/submitted_case.cpp
  cli/shell/line_editor.cpp
  cli/shell/shell_completion.cpp
  cli/shell/shell_line.cpp
  cli/shell/shell_session.cpp)
# Not optimised either, and a unit of its own: toml++ takes long to compile.
set_source_files_properties(cli/config/config_file.cpp PROPERTIES COMPILE_OPTIONS -O0 SKIP_PRECOMPILE_HEADERS ON
                            SKIP_UNITY_BUILD_INCLUSION ON)
target_link_libraries(cp_cli PUBLIC cp_report cp_cases PRIVATE cp_conformance cp_search fmt::fmt CLI11::CLI11
                             pugixml::pugixml Editline::edit)
# The program finds matrices in the source tree when it runs from its build folder.
target_compile_definitions(cp_cli PRIVATE CP_POOL_SOURCE_DIR="${PROJECT_SOURCE_DIR}")

add_executable(cp-pool cli/commands/main.cpp)
target_link_libraries(cp-pool PRIVATE cp_cli fmt::fmt)

# The man page goes into share/man beside bin, where man looks for the page of a program in PATH.
set(man_page "${CMAKE_BINARY_DIR}/share/man/man1/cp-pool.1")
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/share/man/man1")
add_custom_command(OUTPUT "${man_page}" COMMAND cp-pool --man > "${man_page}" DEPENDS cp-pool VERBATIM)
# Each completion goes into the folder below a prefix where its shell looks for those of a program in PATH.
set(completions "${CMAKE_BINARY_DIR}/share/bash-completion/completions/cp-pool"
                "${CMAKE_BINARY_DIR}/share/zsh/site-functions/_cp-pool"
                "${CMAKE_BINARY_DIR}/share/fish/vendor_completions.d/cp-pool.fish")
set(shells bash zsh fish)
foreach(shell script IN ZIP_LISTS shells completions)
  cmake_path(GET script PARENT_PATH folder)
  file(MAKE_DIRECTORY "${folder}")
  add_custom_command(OUTPUT "${script}" COMMAND cp-pool completion ${shell} > "${script}" DEPENDS cp-pool VERBATIM)
endforeach()
add_custom_target(cp-pool-man ALL DEPENDS "${man_page}" ${completions})

cp_pool_test(cli_test LABEL unit
  SOURCES
    cli/device_test.cpp
    cli/option_kinds_test.cpp
    cli/man_page_test.cpp
    cli/execution_options_test.cpp
    cli/output_check_test.cpp
    cli/execution_test.cpp
    cli/shell_words_test.cpp
    cli/status_requests_test.cpp
    cli/worker_command_test.cpp
    cli/commands/command_line_test.cpp
    cli/config/case_overrides_test.cpp
    cli/config/config_file_test.cpp
    cli/config/configuration_test.cpp
    cli/completion/candidates_test.cpp
    cli/commands/doctor_test.cpp
    cli/commands/explanation_page_test.cpp
    cli/commands/explanation_test.cpp
    cli/commands/help_text_test.cpp
    cli/commands/command_options_test.cpp
    log/run_log_test.cpp
    cli/history/earlier_run_test.cpp
    cli/history/found_cases_test.cpp
    cli/history/merged_runs_test.cpp
    cli/history/run_diff_test.cpp
    cli/history/run_records_test.cpp
    cli/select/selection_test.cpp
    cli/select/shard_test.cpp
    cli/select/submitted_case_test.cpp
    cli/shell/line_editor_test.cpp
    cli/shell/shell_completion_test.cpp
    cli/shell/shell_line_test.cpp
    cli/shell/shell_session_test.cpp
  LIBRARIES cp_cli fmt::fmt pugixml::pugixml)
target_compile_definitions(cli_test PRIVATE CP_POOL_SOURCE_DIR="${PROJECT_SOURCE_DIR}")

cp_pool_test(cli_program_test LABEL integration DISCOVER
  SOURCES
    cli/exit_code_program_test.cpp
    cli/input_program_test.cpp
    cli/launcher_program_test.cpp
    cli/output_lock_test.cpp
    cli/output_loss_test.cpp
    cli/output_program_test.cpp
    cli/output_safety_test.cpp
    cli/live_view_program_test.cpp
    cli/commands/adapter_program_test.cpp
    cli/commands/belief_test.cpp
    cli/config/config_program_test.cpp
    cli/commands/conformance_program_test.cpp
    cli/completion/shells_program_test.cpp
    cli/commands/diagnosis_program_test.cpp
    cli/commands/doctor_program_test.cpp
    cli/commands/explain_program_test.cpp
    cli/commands/list_program_test.cpp
    cli/commands/replay_program_test.cpp
    cli/commands/report_program_test.cpp
    cli/commands/run_program_test.cpp
    cli/commands/run_views_program_test.cpp
    cli/commands/search_program_test.cpp
    cli/commands/stream_program_test.cpp
    cli/commands/submit_program_test.cpp
    cli/history/perf_baseline_program_test.cpp
    cli/history/repeated_cases_program_test.cpp
    cli/history/rerun_failed_program_test.cpp
    cli/shell/shell_program_test.cpp
    cli/shell/shell_terminal_test.cpp
    cli/history/run_records_program_test.cpp
  LIBRARIES cp_driver fmt::fmt nlohmann_json::nlohmann_json)
add_dependencies(cli_program_test cp-pool)
target_compile_definitions(cli_program_test PRIVATE
  CP_POOL_PROGRAM="$<TARGET_FILE:cp-pool>"
  CP_POOL_RULED_WORKER="${CMAKE_CURRENT_SOURCE_DIR}/cli/testing/ruled_worker.py"
  CP_POOL_SCRIPTED_WORKER="${CMAKE_CURRENT_SOURCE_DIR}/cli/testing/scripted_worker.py"
  CP_POOL_ADAPTER_PACKAGE="${CMAKE_CURRENT_SOURCE_DIR}/cli/testing/adapter_package")

if(CP_POOL_LIBTORCH)
  cp_pool_test(cli_real_worker_test LABEL integration
    SOURCES cli/real_worker_test.cpp
    LIBRARIES cp_driver fmt::fmt nlohmann_json::nlohmann_json)
  add_dependencies(cli_real_worker_test cp-pool cp-pool-worker)
  target_compile_definitions(cli_real_worker_test PRIVATE CP_POOL_PROGRAM="$<TARGET_FILE:cp-pool>"
                             CP_POOL_WORKER="$<TARGET_FILE:cp-pool-worker>")
endif()
