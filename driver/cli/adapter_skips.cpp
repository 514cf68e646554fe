#include "driver/cli/adapter_skips.h"

#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "driver/cli/device.h"
#include "driver/core/exit_code.h"
#include "driver/os/helper_process.h"
#include "driver/os/spawn.h"
#include "driver/report/output_file.h"
#include "worker/protocol/environment.h"
#include "worker/protocol/json_fields.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {
namespace {

// Prints one JSON object. Each package is imported by itself, so that one that is missing does not hide the other.
constexpr const char* kWhatIsThere = R"(
import json, sys, traceback
there = {"program": sys.executable, "python": sys.version.split()[0], "trouble": ""}
for name in ("torch", "cp_pool"):
    try:
        module = __import__(name)
        there[name] = str(getattr(module, "__version__", "of unknown version"))
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

}  // namespace

std::vector<std::string> skips_of(const WorkerCommand& command, const std::vector<std::string>& case_lines) {
  std::vector<std::string> skips;
  for (AdapterOutlook& outlook : outlooks_of(command, case_lines)) skips.push_back(std::move(outlook.skip));
  return skips;
}

AdapterOutlook outlook_of(const WorkerCommand& command, const std::string& case_line) {
  return outlooks_of(command, {case_line}).front();
}

std::string loading_error(const WorkerCommand& command) {
  const Filtered done = ask(command.explain_skips, "");
  if (done.exit == ExitStatus{}) return "";
  const std::string said = protocol::clean_text(done.err);
  return said.empty() ? describe(done.exit) : said;
}

Interpreter interpreter_of(const WorkerCommand& command) {
  const Filtered done = ask({command.words.front(), "-c", kWhatIsThere}, "");
  Interpreter out;
  try {
    const nlohmann::json there = protocol::parse_foreign_json(protocol::last_line(done.out));
    out.program = there.value("program", "");
    out.python = there.value("python", "");
    out.torch = there.value("torch", "");
    out.cp_pool = there.value("cp_pool", "");
    out.trouble = there.value("trouble", "");
  } catch (const nlohmann::json::exception&) {
    out.trouble = protocol::clean_text(done.err);
    if (out.trouble.empty()) out.trouble = describe(done.exit);
  }
  return out;
}

}  // namespace cp_pool
