#include "driver/cli/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cases/did_you_mean.h"
#include "driver/cli/device.h"
#include "driver/cli/duration.h"
#include "driver/cli/exit_code.h"
#include "driver/cli/help_text.h"
#include "driver/cli/man_page.h"
#include "driver/cli/select/case_source.h"
#include "driver/cli/shell_words.h"
#include "driver/cli/worker_command.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

constexpr const char* kDefaultMatrix = "quick";
constexpr const char* kDefaultSize = "small";
constexpr std::size_t kColumnWidth = 36;

// minimum: the shortest duration that makes sense for the option.
void add_duration(CLI::App& command, const std::string& name, std::chrono::milliseconds& target,
                  std::chrono::milliseconds minimum, const std::string& description) {
  const auto read = [&target](const std::string& text) { target = *parse_duration(text); };
  const auto check = [minimum](const std::string& text) -> std::string {
    const auto duration = parse_duration(text);
    if (!duration)
      return fmt::format("'{}' is not a duration of at most 1000 hours; write 90, 90s, 1500ms or 2m", text);
    if (*duration < minimum) return fmt::format("'{}' is too short", text);
    return "";
  };
  command.add_option_function<std::string>(name, read, description)
      ->check(check, "", "")
      ->type_name("DURATION")
      ->default_str(duration_text(target));
}

// Empty as of a variable that is not set; "-" as other programs understand it, where here it would be such a file.
std::string check_path(const std::string& text, std::string_view instead) {
  if (text.empty()) return "the path is empty";
  return text == "-" ? fmt::format("'-' stands for no stream here; write {}", instead) : "";
}

std::string check_output(const std::string& text) {
  return check_path(text, "/dev/stdout, or ./- for a file of that name");
}

std::string check_input(const std::string& text) {
  return check_path(text, "/dev/stdin, or ./- for a file of that name");
}

std::string check_folder(const std::string& text) {
  return check_path(text, "./- for a folder of that name");
}

// Of a folder that workers write: they hear of it in JSON.
std::string fit_for_messages(const std::string& text) {
  if (protocol::to_valid_utf8(text) != text) return "the path is not UTF-8, which a message to the worker has to be";
  return check_folder(text);
}

void add_path(CLI::App& command, const std::string& name, std::optional<std::filesystem::path>& target,
              const char* type, const std::string& description, std::string (*check)(const std::string& text)) {
  command.add_option_function<std::string>(
             name, [&target](const std::string& text) { target = text; }, description)
      ->check(check, "", "")
      ->type_name(type);
}

// What is wrong with a decimal number of at least `least` that has to fit into an int; empty: nothing.
std::string wrong_with_count(const std::string& text, int least) {
  if (text.starts_with('-')) return fmt::format("'{}' is negative", text);
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) {
    return fmt::format("'{}' is no whole number", text);
  }
  const bool zero = text.find_first_not_of('0') == std::string::npos;
  if (zero && least > 0) return fmt::format("'{}' is less than {}", text, least);
  constexpr int kMost = std::numeric_limits<int>::max();
  int value = 0;
  const bool fits = std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc{};
  return fits ? "" : fmt::format("'{}' is more than {}", text, kMost);
}

void add_count(CLI::App& command, const std::string& name, int& target, const std::string& description) {
  const auto check = [](const std::string& text) { return wrong_with_count(text, 0); };
  command.add_option(name, target, description)->check(check, "", "")->type_name("N")->capture_default_str();
}

// greedy: one --matrix may take several values. Not where a positional argument would be swallowed.
void add_selection(CLI::App& command, SelectionOptions& options, bool greedy, const std::string& matrix_help) {
  options.size = kDefaultSize;
  command.add_option("--matrix", options.matrices, matrix_help)
      ->type_name("NAME|FILE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(greedy);
  command.add_option("--size", options.size, "Size of the cases: full, small, or another that the matrix defines")
      ->type_name("SIZE")
      ->capture_default_str();
}

void add_filter(CLI::App& command, SelectionOptions& options) {
  command
      .add_option("--filter", options.filters,
                  "Only what an ID, a glob over IDs or 'comm=p2p & !model=cp_3_*' selects; several: the union")
      ->type_name("EXPR")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      .add_option("-k", options.keywords,
                  "Of these only what holds a part of an ID or tag: p2p, or 'p2p and not (thd or fp16)'")
      ->type_name("EXPR");
}

void add_shard(CLI::App& command, SelectionOptions& options) {
  const auto check = [](const std::string& text) -> std::string {
    return parse_shard(text) ? "" : fmt::format("'{}' is none of 1/N, 2/N .. N/N", text);
  };
  command
      .add_option_function<std::string>(
          "--shard", [&options](const std::string& text) { options.shard = *parse_shard(text); },
          "Of the selected cases the K-th of N parts of much the same cost: for job K of N of a CI")
      ->check(check, "", "")
      ->type_name("K/N");
}

void add_worker(CLI::App& command, std::string& worker) {
  const auto check_words = [](const std::string& text) -> std::string {
    const auto words = split_words(text);
    return words && !words->empty() ? "" : fmt::format("'{}' is not a command line", text);
  };
  command.add_option("--worker", worker, "Worker command line, split into words as a shell does")
      ->check(check_words, "", "")
      ->type_name("CMD")
      ->default_str("cp-pool-worker beside this program");
}

void add_device(CLI::App& command, std::string& device) {
  command.add_option("--device", device, "Device of the ranks: auto is cuda where there is a GPU, else cpu")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->type_name("DEVICE")
      ->capture_default_str();
}

// What run, submit and report have in common.
void add_views(CLI::App& command, ExecutionOptions& options) {
  command.add_flag("--no-skip", options.config.no_skip, "A skipped case is no success: exit code 96");
  add_path(command, "--junit", options.junit, "FILE", "Write a JUnit XML report, at the end", check_output);
  add_path(command, "--html", options.html, "FILE", "Write a page for people, at the end", check_output);
  command.add_flag("--force", options.force, "Let outputs replace files that are none of cp-pool's");
  command.add_flag("--timings", options.timings, "Where the time went: by phase and ranks, and the slowest cases");
  command.add_flag("-v,--verbose", options.verbose, "A line for each case, with every check: error against bound");
  command.add_flag_callback("-q,--no-progress", [&options] { options.progress = false; }, "Failures and summary only");
}

void add_execution(CLI::App& command, ExecutionOptions& options) {
  RunConfig& config = options.config;
  constexpr std::chrono::milliseconds kShortest{1};
  config.device = "auto";
  add_device(command, config.device);
  command
      .add_option("--share-gpus", options.share_gpus,
                  "Whether ranks share a GPU where there are fewer than ranks: auto does but for --mode perf")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->type_name("WHEN")
      ->capture_default_str();
  add_worker(command, options.worker);
  add_duration(command, "--timeout", config.timeout, kShortest, "Deadline of a case");
  add_duration(command, "--start-timeout", config.start_timeout, kShortest, "Deadline of a pool to get ready");
  add_duration(command, "--grace", config.grace, std::chrono::milliseconds{0}, "SIGTERM to SIGKILL");
  add_duration(command, "--global-timeout", config.global_timeout, std::chrono::milliseconds{0},
               "Deadline of the whole run; 0 = none");
  add_duration(command, "--slow-after", config.slow_after, std::chrono::milliseconds{0},
               "A case that runs for longer is named on stderr, again after twice as long; 0 = never");
  add_count(command, "--max-consecutive-timeouts", config.max_consecutive_timeouts,
            "A pool that times out this often in a row is not started again; 0 = always");
  add_count(command, "--pool-max-cases", config.pool_max_cases, "A pool is replaced after so many cases; 0 = never");
  command.add_flag("--isolate")->description("A fresh pool for each case: as --pool-max-cases 1");
  add_count(command, "--max-fail", config.max_failures, "So many failures end the run, the rest is not-run; 0 = none");
  command.add_flag("-x,--fail-fast")->description("The first failure ends the run: as --max-fail 1");
  add_views(command, options);
  add_path(command, "--events", options.events, "FILE", "Write every event as a line of JSON, as it happens",
           check_output);
  add_path(command, "--run-dir", config.run_dir, "DIR", "Keep the full stdout and stderr of every pool", check_folder);
  add_path(command, "--dump", config.dump_dir, "DIR", "Let the worker write the tensors of each case",
           fit_for_messages);
  command.add_flag_callback(
      "--no-reference-cache", [&config] { config.reference_cache = false; },
      "The worker computes every expected result anew, and keeps none");
}

// What --mode, --warmup and --iterations say; config.perf comes of them when all is read.
struct PerfArguments {
  bool perf = false;
  protocol::PerfRequest request;
};

void add_perf(CLI::App& command, ExecutionOptions& options, PerfArguments& perf) {
  command
      .add_option_function<std::string>(
          "--mode", [&perf](const std::string& mode) { perf.perf = mode == "perf"; },
          "verify: is the answer right; perf: then also how fast the step is")
      ->check(CLI::IsMember({"verify", "perf"}))
      ->type_name("MODE")
      ->default_str("verify");
  add_count(command, "--warmup", perf.request.warmup, "Steps before those that --mode perf times");
  add_count(command, "--iterations", perf.request.iterations, "Steps that --mode perf times");
  command.add_flag("--graph", perf.request.graph, "Time replays of a CUDA graph of the step");
  command
      .add_option_function<std::string>(
          "--trace", [&perf](const std::string& folder) { perf.request.trace_dir = folder; },
          "Let each rank write what one step does: a Chrome trace, and on GPUs a table by kernel")
      ->check(fit_for_messages, "", "")
      ->type_name("DIR");
  add_path(command, "--baseline", options.baseline, "FILE", "Compare the times with those of an earlier --events FILE",
           check_input);
  const auto check_ratio = [](const std::string& text) -> std::string {
    double ratio = 0;
    const bool right = CLI::detail::lexical_cast(text, ratio) && std::isfinite(ratio) && ratio > 0;
    return right ? "" : fmt::format("'{}' is not a number above 0", text);
  };
  command
      .add_option_function<double>(
          "--max-ratio", [&options](double ratio) { options.config.max_ratio = ratio; },
          "A case that takes more than R times as long as in the --baseline is a failure")
      ->check(check_ratio, "", "")
      ->type_name("R");
}

// The option `name` stands for `count` of 1. Throws CommandError (usage) beside any other.
void apply_shorthand(const CLI::App& command, const std::string& name, const std::string& count, int& target) {
  if (command.count(name) == 0) return;
  if (command.count(count) > 0 && target != 1) {
    throw CommandError(ExitCode::usage, fmt::format("{} is {} 1: it contradicts {} {} (see cp-pool {} --help)", name,
                                                    count, count, target, command.get_name()));
  }
  target = 1;
}

// Throws CommandError (usage).
void refuse_both(const CLI::App& command, const std::string& one, const std::string& other) {
  if (command.count(one) == 0 || command.count(other) == 0) return;
  throw CommandError(ExitCode::usage, fmt::format("{} and {} contradict each other (see cp-pool {} --help)", one, other,
                                                  command.get_name()));
}

// Of run and submit. Throws CommandError (usage).
void apply_shorthands(const CLI::App& command, RunConfig& config) {
  apply_shorthand(command, "--fail-fast", "--max-fail", config.max_failures);
  apply_shorthand(command, "--isolate", "--pool-max-cases", config.pool_max_cases);
  refuse_both(command, "--verbose", "--no-progress");
}

void apply_device(ExecutionOptions& options) {
  DeviceChoice choice = choose_device(options.config.device, worker_command(options.worker).shipped);
  options.config.device = std::move(choice.device);
  options.warning = std::move(choice.warning);
}

// After apply_device. Throws CommandError (usage).
void apply_perf(const CLI::App& command, const PerfArguments& perf, ExecutionOptions& options) {
  if (!perf.perf) {
    for (const char* name : {"--warmup", "--iterations", "--graph", "--trace", "--baseline", "--max-ratio"}) {
      if (command.count(name) == 0) continue;
      throw CommandError(ExitCode::usage, fmt::format("{} needs --mode perf (see cp-pool run --help)", name));
    }
    return;
  }
  if (perf.request.iterations < 1) {
    throw CommandError(ExitCode::usage, "--iterations: at least 1 (see cp-pool run --help)");
  }
  if (perf.request.graph && options.config.device != "cuda") {
    throw CommandError(ExitCode::usage, "--graph needs ranks on GPUs (--device cuda)");
  }
  if (options.config.max_ratio && !options.baseline) {
    throw CommandError(ExitCode::usage, "--max-ratio needs --baseline (see cp-pool run --help)");
  }
  options.config.perf = perf.request;
  // Pools side by side would take each other's time.
  options.config.max_busy_ranks = 1;
}

// After apply_perf.
void apply_sharing(ExecutionOptions& options) {
  const bool times = options.config.perf.has_value();
  options.config.share_gpus = options.share_gpus == "on" || (options.share_gpus == "auto" && !times);
}

// --matrix and --size say where an ID is looked up. Throws CommandError (usage).
void refuse_lookup_of_file(const CLI::App& command, const std::string& argument) {
  const bool events = argument == "--rerun-failed";
  if (!events && is_id(argument)) return;
  for (const char* name : {"--matrix", "--size"}) {
    if (command.count(name) == 0) continue;
    throw CommandError(ExitCode::usage,
                       fmt::format("{} is for the ID of a case, and {} is {} (see cp-pool {} --help)", name, argument,
                                   events            ? "a file of cases"
                                   : argument == "-" ? "a stream"
                                                     : "a file",
                                   command.get_name()));
  }
}

// Throws CommandError (usage).
void expect_one_source(const SubmitOptions& submit) {
  const char* wrong = nullptr;
  if (submit.case_argument.empty() && !submit.rerun_failed) wrong = "CASE or --rerun-failed is required";
  if (!submit.case_argument.empty() && submit.rerun_failed) wrong = "CASE and --rerun-failed contradict each other";
  if (wrong != nullptr) throw CommandError(ExitCode::usage, fmt::format("{} (see cp-pool submit --help)", wrong));
}

void add_edits(CLI::App& command, std::vector<std::string>& edits) {
  command.add_option("--set", edits, "Change a field of the case: comm=a2a, cp_size=4, window=64,0; may be repeated")
      ->type_name("KEY=VALUE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

void add_order(CLI::App& command, RunOptions& options) {
  const auto check = [](const std::string& text) -> std::string {
    return parse_order(text) ? "" : fmt::format("'{}' is none of listed, reverse, shuffle, shuffle:SEED", text);
  };
  command
      .add_option_function<std::string>(
          "--order", [&options](const std::string& text) { options.order = *parse_order(text); },
          "Of the cases: listed, reverse, shuffle or shuffle:SEED")
      ->check(check, "", "")
      ->type_name("ORDER")
      ->default_str("listed");
  const auto check_repeat = [](const std::string& text) { return wrong_with_count(text, 1); };
  command.add_option("--repeat", options.repeat, "Run every case N times, and compare the outputs")
      ->check(check_repeat, "", "")
      ->type_name("N")
      ->capture_default_str();
}

// What of the options changes the outcome of a case, as the arguments of its rerun.
std::vector<std::string> rerun_arguments(const CLI::App& command, const ExecutionOptions& options) {
  std::vector<std::string> words;
  const auto add = [&](const std::string& name, const std::string& value) {
    if (command.count(name) > 0) words.insert(words.end(), {name, value});
  };
  add("--device", options.config.device);
  add("--share-gpus", options.share_gpus);
  add("--worker", options.worker);
  add("--timeout", duration_text(options.config.timeout));
  add("--start-timeout", duration_text(options.config.start_timeout));
  if (options.config.perf) {
    words.insert(words.end(), {"--mode", "perf"});
    add("--warmup", std::to_string(options.config.perf->warmup));
    add("--iterations", std::to_string(options.config.perf->iterations));
    if (options.config.perf->graph) words.emplace_back("--graph");
    if (options.config.max_ratio) {
      add("--baseline", options.baseline->string());
      add("--max-ratio", fmt::format("{}", *options.config.max_ratio));
    }
  }
  return words;
}

struct CallForManPage {};

// Everything the parser writes into; it must not move once options refer to it.
struct Parser {
  CLI::App app{"Runs context-parallel attention cases on warm pools of ranks and says which answers are wrong.",
               "cp-pool"};
  RunOptions run;
  PerfArguments run_perf;
  SubmitOptions submit;
  PerfArguments submit_perf;
  ListOptions list;
  CLI::App* run_command = nullptr;
  CLI::App* submit_command = nullptr;
  CLI::App* list_command = nullptr;
  ReportOptions report;
  CLI::App* report_command = nullptr;
  ExplainOptions explain;
  CLI::App* explain_command = nullptr;
  DoctorOptions doctor;
  CLI::App* doctor_command = nullptr;
  std::string help_topic;
  CLI::App* help_command = nullptr;
  ConformanceOptions conformance;
  CLI::App* conformance_command = nullptr;

  Parser() {
    app.set_version_flag("--version", "cp-pool " CP_POOL_VERSION, "Print the version");
    app.set_help_flag("-h,--help", "Print this help");
    app.add_flag_callback("--man", [] { throw CallForManPage(); }, "Print the man page: cp-pool --man | man -l -");
    app.require_subcommand(1);
    // The commands inherit both.
    app.get_formatter()->column_width(kColumnWidth);
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app.footer(main_footer());
    add_run();
    add_submit();
    add_list();
    add_report();
    add_explain();
    add_doctor();
    add_help();
    add_conformance();
  }

  void add_run() {
    run_command = app.add_subcommand("run", "Run the cases of matrices");
    run_command->footer(run_footer());
    add_selection(*run_command, run.selection, true, "Matrices: names of shipped ones, or files (default: quick)");
    add_filter(*run_command, run.selection);
    add_shard(*run_command, run.selection);
    add_path(*run_command, "--rerun-failed", run.rerun_failed, "FILE",
             "Of the selected cases only those that failed or did not run in an earlier --events FILE", check_input);
    add_order(*run_command, run);
    run_command->add_flag("--deterministic", run.deterministic,
                          "Ask for deterministic kernels in every case: the same bits on every run, GPUs included");
    add_execution(*run_command, run.execution);
    add_perf(*run_command, run.execution, run_perf);
  }

  void add_submit() {
    submit_command = app.add_subcommand("submit", "Run one case, or a stream of them");
    submit_command->footer(submit_footer());
    submit_command->add_option(
        "CASE", submit.case_argument,
        "A JSON file, the ID of a case of a matrix, or - for a stream on stdin: one JSON object a line");
    add_path(*submit_command, "--rerun-failed", submit.rerun_failed, "FILE",
             "Instead: the cases that failed or did not end in an earlier --events FILE, which holds them",
             check_input);
    add_selection(*submit_command, submit.selection, false, "Where an ID is looked up (default: every shipped matrix)");
    add_edits(*submit_command, submit.edits);
    submit_command->add_flag("--json", submit.json, "Print one JSON object a case, in order, and nothing else");
    add_execution(*submit_command, submit.execution);
    add_perf(*submit_command, submit.execution, submit_perf);
  }

  void add_list() {
    list_command = app.add_subcommand("list", "List the cases of matrices");
    list_command->footer(list_footer());
    add_selection(*list_command, list.selection, true, "Matrices: names of shipped ones, or files (default: quick)");
    add_filter(*list_command, list.selection);
    add_shard(*list_command, list.selection);
    CLI::Option* json =
        list_command->add_flag("--json", list.json, "A JSON array: id, world_size, size, tags, case, lengths");
    list_command->add_flag("--count", list.count, "The number of cases of each suite")->excludes(json);
  }

  void add_report() {
    report_command = app.add_subcommand("report", "Make the reports of earlier runs anew, of several runs as of one");
    report_command->footer(report_footer());
    report_command->add_option("FILE", report.files, "What --events wrote")->required();
    add_views(*report_command, report.execution);
  }

  void add_explain() {
    explain_command = app.add_subcommand("explain", "Draw a case: its mask, who owns what, what each rank does");
    explain_command->footer(explain_footer());
    explain_command->add_option("CASE", explain.case_argument, "The ID of a case of a matrix, or a JSON file")
        ->required();
    add_selection(*explain_command, explain.selection, false,
                  "Where an ID is looked up (default: every shipped matrix)");
    add_edits(*explain_command, explain.edits);
  }

  void add_doctor() {
    doctor_command = app.add_subcommand("doctor", "Say what is installed, what would run, and what is missing");
    doctor_command->footer(doctor_footer());
    add_worker(*doctor_command, doctor.worker);
    add_duration(*doctor_command, "--timeout", doctor.timeout, std::chrono::milliseconds{1},
                 "Deadline of each try: of ranks to start, and of a case on them");
  }

  void add_help() {
    help_command = app.add_subcommand("help", "Print the help of a command");
    help_command->footer(help_footer());
    help_command->add_option("COMMAND", help_topic, "A command; all of them if left out");
  }

  [[nodiscard]] std::vector<std::string> command_names() const {
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(command->get_name());
    }
    return names;
  }

  // Throws CommandError (usage).
  [[noreturn]] void refuse_command(const std::string& name) const {
    throw CommandError(ExitCode::usage, fmt::format("there is no command '{}'{} (see cp-pool --help)", name,
                                                    did_you_mean(name, command_names())));
  }

  void add_conformance() {
    constexpr std::chrono::milliseconds kShortest{1};
    conformance_command = app.add_subcommand("conformance", "Try whether a worker keeps to the protocol, rule by rule");
    conformance_command->footer(conformance_footer());
    add_worker(*conformance_command, conformance.worker);
    add_device(*conformance_command, conformance.device);
    add_duration(*conformance_command, "--timeout", conformance.timeout, kShortest, "Deadline of an answer to a case");
    add_duration(*conformance_command, "--start-timeout", conformance.start_timeout, kShortest,
                 "Deadline of the worker to get ready");
  }

  CommandLine result() {
    if (run_command->parsed()) {
      if (run.selection.matrices.empty()) run.selection.matrices = {kDefaultMatrix};
      apply_shorthands(*run_command, run.execution.config);
      apply_device(run.execution);
      apply_perf(*run_command, run_perf, run.execution);
      apply_sharing(run.execution);
      run.execution.rerun_arguments = rerun_arguments(*run_command, run.execution);
      if (run.deterministic) run.execution.rerun_arguments.emplace_back("--deterministic");
      if (run.repeat > 1) {
        run.execution.config.compare_runs = true;
        run.execution.rerun_arguments.insert(run.execution.rerun_arguments.end(),
                                             {"--repeat", std::to_string(run.repeat)});
      }
      return run;
    }
    if (submit_command->parsed()) {
      expect_one_source(submit);
      refuse_lookup_of_file(*submit_command, submit.rerun_failed ? "--rerun-failed" : submit.case_argument);
      for (const char* const shown : {"--verbose", "--timings"}) refuse_both(*submit_command, "--json", shown);
      apply_shorthands(*submit_command, submit.execution.config);
      apply_device(submit.execution);
      apply_perf(*submit_command, submit_perf, submit.execution);
      apply_sharing(submit.execution);
      submit.execution.rerun_arguments = rerun_arguments(*submit_command, submit.execution);
      return submit;
    }
    if (explain_command->parsed()) {
      refuse_lookup_of_file(*explain_command, explain.case_argument);
      return explain;
    }
    if (report_command->parsed()) {
      refuse_both(*report_command, "--verbose", "--no-progress");
      return report;
    }
    if (help_command->parsed()) {
      std::vector<const char*> words{"cp-pool", "--help"};
      if (!help_topic.empty()) {
        if (std::ranges::count(command_names(), help_topic) == 0) refuse_command(help_topic);
        words.insert(words.begin() + 1, help_topic.c_str());
      }
      return parse_command_line(static_cast<int>(words.size()), words.data());
    }
    if (doctor_command->parsed()) return doctor;
    if (conformance_command->parsed()) return conformance;
    if (list.selection.matrices.empty()) list.selection.matrices = {kDefaultMatrix};
    return list;
  }
};

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  const auto parser = std::make_unique<Parser>();
  try {
    parser->app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return PrintText{parser->app.help() + '\n' + exit_code_help()};
  } catch (const CallForManPage&) {
    return PrintText{man_page(parser->app)};
  } catch (const CLI::CallForVersion& e) {
    return PrintText{std::string{e.what()} + '\n'};
  } catch (const CLI::ParseError& e) {
    const std::vector<std::string> unknown = parser->app.remaining();
    if (parser->app.get_subcommands().empty() && !unknown.empty()) parser->refuse_command(unknown.front());
    const auto commands = parser->app.get_subcommands();
    const std::string help =
        commands.empty() ? "cp-pool --help" : "cp-pool " + commands.front()->get_name() + " --help";
    throw CommandError(ExitCode::usage, fmt::format("{} (see {})", e.what(), help));
  }
  return parser->result();
}

}  // namespace cp_pool
