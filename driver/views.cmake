# The views of the event stream (reporters/) and the command line (cli/).
add_library(cp_reporters STATIC
  log/counted_runs.cpp
  log/events_json.cpp
  log/run_log.cpp
  log/run_report.cpp
  reporters/case_runs.cpp
  reporters/checks_table.cpp
  reporters/diagnosis_text.cpp
  reporters/failure_text.cpp
  reporters/fan_out.cpp
  reporters/file_lock.cpp
  reporters/github_annotations.cpp
  reporters/html_document.cpp
  reporters/html_report.cpp
  reporters/jsonl_sink.cpp
  reporters/junit_report.cpp
  reporters/live_line.cpp
  reporters/markdown.cpp
  reporters/markdown_report.cpp
  reporters/mask_text.cpp
  reporters/notices.cpp
  reporters/output_file.cpp
  reporters/perf_table.cpp
  reporters/reported_run.cpp
  reporters/running_now.cpp
  reporters/search_text.cpp
  reporters/pictures/case_mask_svg.cpp
  reporters/pictures/cell_runs.cpp
  reporters/pictures/exchange_svg.cpp
  reporters/pictures/features_table.cpp
  reporters/pictures/mask_svg.cpp
  reporters/pictures/rank_axes.cpp
  reporters/pictures/strip_svg.cpp
  reporters/pictures/svg.cpp
  reporters/pictures/time_axis.cpp
  reporters/pictures/timeline.cpp
  reporters/pictures/timeline_bars.cpp
  reporters/pictures/timeline_svg.cpp
  reporters/summary.cpp
  reporters/terminal_sink.cpp
  reporters/text_format.cpp
  reporters/durations.cpp
  reporters/timings_table.cpp
  reporters/told_failures.cpp
  reporters/trace_report.cpp
  reporters/verdict_text.cpp
  reporters/xml_nodes.cpp)
target_link_libraries(cp_reporters PUBLIC cp_driver PRIVATE fmt::fmt pugixml::pugixml)

cp_pool_test(reporters_test LABEL unit
  SOURCES
    log/event_reading_test.cpp
    log/events_json_test.cpp
    log/run_report_test.cpp
    reporters/case_runs_test.cpp
    reporters/checks_table_test.cpp
    reporters/diagnosis_text_test.cpp
    reporters/failure_text_test.cpp
    reporters/fan_out_test.cpp
    reporters/file_lock_test.cpp
    reporters/github_annotations_test.cpp
    reporters/html_report_test.cpp
    reporters/jsonl_sink_test.cpp
    reporters/junit_report_test.cpp
    reporters/live_line_test.cpp
    reporters/markdown_report_test.cpp
    reporters/markdown_test.cpp
    reporters/mask_text_test.cpp
    reporters/notices_test.cpp
    reporters/output_file_test.cpp
    reporters/perf_table_test.cpp
    reporters/running_now_test.cpp
    reporters/search_text_test.cpp
    reporters/pictures/case_mask_svg_test.cpp
    reporters/pictures/exchange_svg_test.cpp
    reporters/pictures/features_table_test.cpp
    reporters/pictures/mask_svg_test.cpp
    reporters/pictures/strip_svg_test.cpp
    reporters/pictures/time_axis_test.cpp
    reporters/pictures/timeline_svg_test.cpp
    reporters/pictures/timeline_test.cpp
    reporters/shared_gpus_test.cpp
    reporters/summary_test.cpp
    reporters/terminal_sink_test.cpp
    reporters/text_format_test.cpp
    reporters/timings_table_test.cpp
    reporters/told_failures_test.cpp
    reporters/trace_report_test.cpp
    reporters/verdict_views_test.cpp
  LIBRARIES cp_reporters fmt::fmt pugixml::pugixml)
target_compile_definitions(reporters_test PRIVATE
  CP_POOL_CHECK_TRACE="${CMAKE_CURRENT_SOURCE_DIR}/testing/check_trace.py"
  CP_POOL_CHECK_JUNIT="${CMAKE_CURRENT_SOURCE_DIR}/testing/check_junit.py"
  CP_POOL_SOURCE_DIR="${PROJECT_SOURCE_DIR}")

# --- Conformance ------------------------------------------------------------------------------------------------------
add_library(cp_conformance STATIC
  conformance/conformance.cpp
  conformance/conformance_cases.cpp
  conformance/conformance_faults.cpp
  conformance/conformance_requests.cpp
  conformance/session.cpp)
target_link_libraries(cp_conformance PUBLIC cp_driver Asio::asio PRIVATE cp_reporters fmt::fmt)

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
target_link_libraries(cp_cli_parser PUBLIC cp_reporters PRIVATE fmt::fmt CLI11::CLI11)
cp_pool_not_optimised(cp_cli_parser)

add_library(cp_cli STATIC
  $<TARGET_OBJECTS:cp_cli_parser>
  cli/device.cpp
  cli/duration.cpp
  cli/gpu_list.cpp cli/launcher_choice.cpp
  cli/environment_help.cpp
  cli/execution.cpp
  cli/execution_options.cpp
  cli/file_identity.cpp
  cli/injected_faults.cpp
  cli/output_check.cpp
  cli/program_paths.cpp
  cli/retry_options.cpp
  cli/shell_words.cpp
  cli/state_folder.cpp
  cli/config/case_overrides.cpp
  cli/config/config_file.cpp
  cli/config/test_environment.cpp
  cli/status_requests.cpp
  cli/adapter_skips.cpp
  cli/worker_command.cpp
  cli/commands/completion_command.cpp
  cli/commands/conformance_command.cpp
  cli/commands/diff_command.cpp
  cli/commands/doctor.cpp
  cli/commands/doctor_command.cpp
  cli/commands/explain_command.cpp
  cli/commands/explanation.cpp
  cli/commands/explanation_page.cpp
  cli/commands/help_command.cpp
  cli/commands/list_command.cpp
  cli/commands/replay_command.cpp
  cli/commands/report_command.cpp
  cli/commands/reported.cpp
  cli/commands/resource_limits.cpp
  cli/commands/run_command.cpp
  cli/commands/run_preparation.cpp
  cli/commands/runs_command.cpp
  cli/commands/search_command.cpp
  cli/commands/serve_command.cpp
  cli/commands/shell_command.cpp
  cli/commands/show_command.cpp
  cli/commands/status_command.cpp
  cli/commands/stop_command.cpp
  cli/commands/submit_command.cpp
  cli/completion/shell_scripts.cpp
  cli/history/case_history.cpp
  cli/history/case_trends.cpp
  cli/history/compared_run.cpp
  cli/history/failed_cases.cpp
  cli/history/found_cases.cpp
  cli/history/merged_runs.cpp
  cli/history/perf_baseline.cpp
  cli/history/record_options.cpp
  cli/history/run_diff.cpp
  cli/history/run_recorder.cpp
  cli/history/run_records.cpp
  cli/history/shard_check.cpp
  cli/select/case_source.cpp
  cli/select/edit.cpp
  cli/select/order.cpp
  cli/select/rerun.cpp
  cli/select/selection.cpp
  cli/select/selection_options.cpp
  cli/select/shard.cpp
  cli/select/submitted_case.cpp
  cli/shell/line_editor.cpp
  cli/shell/result_diff.cpp
  cli/shell/shell_completion.cpp
  cli/shell/shell_history.cpp
  cli/shell/shell_line.cpp
  cli/shell/shell_service.cpp
  cli/shell/shell_session.cpp)
# Not optimised either, and a unit of its own: toml++ takes long to compile.
set_source_files_properties(cli/config/config_file.cpp PROPERTIES COMPILE_OPTIONS -O0 SKIP_PRECOMPILE_HEADERS ON
                            SKIP_UNITY_BUILD_INCLUSION ON)
target_link_libraries(cp_cli PUBLIC cp_reporters cp_cases PRIVATE cp_conformance cp_search fmt::fmt CLI11::CLI11
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
    cli/duration_test.cpp
    cli/gpu_list_test.cpp cli/launcher_choice_test.cpp
    cli/environment_help_test.cpp
    cli/execution_options_test.cpp
    cli/file_identity_test.cpp
    cli/injected_faults_test.cpp
    cli/shell_words_test.cpp
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
    cli/commands/list_command_test.cpp
    cli/commands/resource_limits_test.cpp
    cli/commands/run_command_test.cpp
    cli/commands/search_command_test.cpp
    cli/commands/submit_command_test.cpp
    log/counted_runs_test.cpp
    log/run_log_test.cpp
    cli/history/case_history_test.cpp
    cli/history/case_trends_test.cpp
    cli/history/failed_cases_test.cpp
    cli/history/found_cases_test.cpp
    cli/history/merged_runs_test.cpp
    cli/history/perf_baseline_test.cpp
    cli/history/run_diff_test.cpp
    cli/history/run_records_test.cpp
    cli/history/shard_check_test.cpp
    cli/select/case_source_test.cpp
    cli/select/edit_test.cpp
    cli/select/order_test.cpp
    cli/select/rerun_test.cpp
    cli/select/selection_options_test.cpp
    cli/select/selection_test.cpp
    cli/select/shard_test.cpp
    cli/select/submitted_case_test.cpp
    cli/shell/line_editor_test.cpp
    cli/shell/result_diff_test.cpp
    cli/shell/shell_completion_test.cpp
    cli/shell/shell_history_test.cpp
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
