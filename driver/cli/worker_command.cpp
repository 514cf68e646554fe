#include "driver/cli/worker_command.h"

#include <system_error>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cases/error_reason.h"
#include "driver/cli/device.h"
#include "driver/cli/option_kinds.h"
#include "driver/cli/program_paths.h"
#include "driver/cli/shell_words.h"
#include "driver/core/exit_code.h"
#include "driver/os/helper_process.h"
#include "driver/os/spawn.h"
#include "driver/report/output_file.h"
#include "worker/protocol/environment.h"
#include "worker/protocol/json_fields.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPythonFile = ".py";

// Returns the adapter with an absolute path, since ranks may run in another folder.
std::string absolute_adapter(const std::string& text) {
  const AdapterPlace place = adapter_place(text);
  if (place.file.empty()) return text;
  return fs::absolute(place.file).lexically_normal().string() + (place.name.empty() ? "" : ":" + place.name);
}

bool is_identifier(std::string_view text) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
  };
  return !text.empty() && letter(text.front()) &&
         std::ranges::all_of(text, [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

std::string wrong_with_file(const std::string& file) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (!fs::exists(status)) return fmt::format("there is no file {}", file);
  if (fs::is_directory(status)) return fmt::format("{} is a folder", file);
  if (::access(file.c_str(), R_OK) == 0) return "";
  return fmt::format("cannot read {}: {}", file, error_reason(std::error_code(errno, std::generic_category())));
}

constexpr const char* kLongestDelay = "2";  // in ms, where --delays names none

WorkerCommand adapter_command(const WorkerChoice& choice) {
  const std::string python = choice.python.empty() ? default_python() : choice.python;
  const std::string adapter = absolute_adapter(choice.adapter);
  const auto module_call = [&](const char* module) { return std::vector<std::string>{python, "-m", module, adapter}; };
  WorkerCommand command{.words = module_call("cp_pool.worker"),
                        .implementation = protocol::clean_text("adapter " + adapter),
                        .fork_server = module_call("cp_pool.server"),
                        .explain_skips = module_call("cp_pool.worker")};
  command.explain_skips.emplace_back("--explain-skips");
  if (!choice.delays.empty()) {
    const std::size_t colon = std::min(choice.delays.find(':'), choice.delays.size());
    const std::string longest = colon == choice.delays.size() ? kLongestDelay : choice.delays.substr(colon + 1);
    command.words.insert(command.words.end(), {"--delays", choice.delays.substr(0, colon), longest});
  }
  return command;
}

// Names the worker by its words. The path of its program is absolute, so that equal names mean the same program.
std::string named_by_words(std::vector<std::string> words, bool shipped) {
  fs::path program = words.front();
  if (shipped) program = program.filename();
  if (program.has_parent_path()) program = fs::absolute(program).lexically_normal();
  words.front() = program.string();
  return protocol::clean_text("worker " + shell_line(words));
}

// Prints one JSON object. Each package is imported by itself, so that one that is missing does not hide the other.
constexpr const char* kWhatIsThere = R"(
import json, sys, traceback
there = {"text": sys.executable + ", Python " + sys.version.split()[0], "trouble": ""}
for name in ("torch", "cp_pool"):
    try:
        module = __import__(name)
        there["text"] += ", " + name + " " + str(getattr(module, "__version__", "of unknown version"))
    except BaseException:
        there["trouble"] += traceback.format_exc()
print("\n" + json.dumps(there))
)";

// Runs a program of the adapter. One that cannot be started exits with kExitCommandNotFound and its reason in stderr,
// as in a shell.
Filtered ask(const std::vector<std::string>& words, const std::string& input) {
  try {
    return run_filter(words, input, {{protocol::kEnvDevice, choose_device("auto", false).device}});
  } catch (const SpawnError& e) {
    return {.exit = {false, protocol::kExitCommandNotFound}, .err = std::string{e.what()} + '\n'};
  }
}

}  // namespace

WorkerCommand worker_command(const WorkerChoice& choice) {
  if (!choice.adapter.empty()) return adapter_command(choice);
  const fs::path shipped = default_worker();
  const std::string own = "own";
  if (choice.command.empty()) return {.words = {shipped.string()}, .implementation = own, .shipped = true};
  WorkerCommand command{.words = split_words(choice.command).value()};
  std::string& program = command.words.front();
  if (program == shipped.filename() && fs::exists(shipped)) program = shipped.string();
  command.shipped = program == shipped.string();
  command.implementation =
      command.shipped && command.words.size() == 1 ? own : named_by_words(command.words, command.shipped);
  return command;
}

void set_worker(const WorkerCommand& command, bool forks, RankProgram& program) {
  program.worker_command = command.words;
  if (forks) program.fork_server = command.fork_server;
  program.implementation = command.implementation;
}

void set_worker_of_call(const WorkerChoice& choice, bool forks, Item& item) {
  if (item.payload->attention() != nullptr || !choice.adapter.empty() || !choice.command.empty()) return;
  WorkerChoice of_calls = choice;
  of_calls.adapter = "cp_pool.calls:ranks";
  if (!item.ranks) item.ranks.emplace();
  set_worker(worker_command(of_calls), forks, *item.ranks);
  item.ranks->start_timeout_grows = true;
}

AdapterPlace adapter_place(std::string_view text) {
  if (text.ends_with(kPythonFile)) return {.file = std::string(text)};
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return {.file = ""};
  const std::string_view before = text.substr(0, colon);
  const bool file = before.ends_with(kPythonFile) || before.find('/') != std::string_view::npos;
  return {.file = file ? std::string(before) : "", .name = std::string(text.substr(colon + 1))};
}

std::string wrong_with_adapter(const std::string& text) {
  const AdapterPlace place = adapter_place(text);
  const bool named = text.ends_with(":" + place.name);
  if (named && !is_identifier(place.name)) return fmt::format("'{}' is not the name of an adapter", place.name);
  if (!place.file.empty()) return wrong_with_file(place.file);
  const std::string_view module = std::string_view{text}.substr(0, text.size() - place.name.size() - (named ? 1 : 0));
  if (named && std::ranges::all_of(split(module, '.'), is_identifier)) return "";
  return fmt::format("'{}' is neither FILE.py[:NAME] nor package.module:NAME", text);
}

std::string default_python() {
  const auto is_program = [](const fs::path& path) { return ::access(path.c_str(), X_OK) == 0; };
  const fs::path program = program_path();
  if (const fs::path beside = program.parent_path() / "python3"; is_program(beside)) return beside.string();
  // PREFIX/lib/python3.11/site-packages/.. belongs to PREFIX/bin/python3.
  for (fs::path folder = program.parent_path(); folder.has_relative_path(); folder = folder.parent_path()) {
    if (folder.filename() != "site-packages") continue;
    const fs::path python = folder.parent_path().parent_path().parent_path() / "bin/python3";
    if (is_program(python)) return python.string();
  }
  return "python3";
}

std::string wrong_with_launcher(const std::string& text) {
  if (parse_name<LauncherKind>(text)) return "";
  const auto words = split_words(text);
  if (!words || words->empty()) return fmt::format("'{}' is not a command line", text);
  if (words->size() == 1) {
    return fmt::format("'{}' is not {}, and no command line with {{worker}} in it", text, list_names<LauncherKind>());
  }
  return template_error(*words);
}

Launcher parse_launcher(const std::string& text) {
  if (const auto kind = parse_name<LauncherKind>(text)) return {*kind, {}};
  return {LauncherKind::custom, split_words(text).value()};
}

std::vector<AdapterOutlook> outlooks_of(const WorkerCommand& command, const std::vector<std::string>& case_lines) {
  std::string input;
  for (const std::string& line : case_lines) input += line + '\n';
  const Filtered done = ask(command.explain_skips, input);
  std::vector<AdapterOutlook> answers = parse_outlooks(done.out);
  if (done.exit == ExitStatus{} && answers.size() == case_lines.size()) return answers;
  write_all(STDERR_FILENO, protocol::clean_text(done.err), "stderr");
  throw CommandError(
      ExitCode::infra,
      done.exit == ExitStatus{}
          ? fmt::format("the adapter was asked about {} cases, and answered {}", case_lines.size(), answers.size())
          : fmt::format("the adapter cannot be asked what it would skip: {}", describe(done.exit)));
}

std::string loading_error(const WorkerCommand& command) {
  const Filtered done = ask(command.explain_skips, "");
  if (done.exit == ExitStatus{}) return "";
  const std::string said = protocol::clean_text(done.err);
  return said.empty() ? describe(done.exit) : said;
}

Interpreter interpreter_of(const WorkerCommand& command) {
  const Filtered done = ask({command.words.front(), "-c", kWhatIsThere}, "");
  Interpreter out{.text = command.words.front()};
  try {
    const nlohmann::json there = protocol::parse_foreign_json(protocol::last_line(done.out));
    out = {.text = there.value("text", out.text), .trouble = there.value("trouble", "")};
  } catch (const nlohmann::json::exception&) {
    out.trouble = protocol::clean_text(done.err);
    if (out.trouble.empty()) out.trouble = describe(done.exit);
  }
  return out;
}

}  // namespace cp_pool
