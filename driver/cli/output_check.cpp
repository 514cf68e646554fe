#include "driver/cli/output_check.h"

#include <cerrno>
#include <fstream>
#include <sys/stat.h>
#include <system_error>

#include <fmt/format.h>

#include "driver/core/exit_code.h"
#include "driver/report/output_file.h"
#include "driver/report/reports.h"

namespace cp_pool {
namespace {

// Returns where open() would make the file: it follows links that lead to no file.
std::filesystem::path follow_dangling_links(std::filesystem::path path) {
  std::error_code error;
  for (int i = 0; i < kMostLinks; ++i) {
    const std::filesystem::path target = std::filesystem::read_symlink(path, error);
    if (error) break;  // no link
    path = path.parent_path() / target;
  }
  return path;
}

struct Place {
  std::string name;
  std::optional<FileIdentity> identity;
};

// An input that does not exist is no file that could be lost.
Place place_of(const InputFile& input) {
  std::optional<FileIdentity> identity = identify(input.path);
  if (identity && !identity->place.empty()) identity.reset();
  return {input.name, std::move(identity)};
}

void expect_different(const Place& one, const Place& other) {
  if (!one.identity || one.identity != other.identity) return;
  throw CommandError(ExitCode::usage, "{} and {} are the same file", one.name, other.name);
}

std::string first_bytes(const std::filesystem::path& path, std::size_t count) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes(count, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  return bytes;
}

// An option may replace an empty file, or one that begins like every file that the option writes. A shorter file may be
// just that beginning, left by a run whose disk was full.
void expect_own(const Output& output) {
  constexpr std::size_t kShown = 40;
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(output.path, error);
  if (!std::filesystem::is_regular_file(status)) return;
  if (std::filesystem::file_size(output.path, error) == 0) return;
  const std::string bytes = first_bytes(output.path, std::max(output.start.size(), kShown));
  const std::string_view begin = std::string_view{bytes}.substr(0, output.start.size());
  if (!begin.empty() && output.start.starts_with(begin)) return;
  std::string shown = bytes.substr(0, kShown);
  shown.resize(std::min(shown.find_first_of("\r\n"), shown.size()));
  throw CommandError(ExitCode::usage, "{}: this file is no {} of cp-pool{}; --force replaces it", output.name(),
                     output.what, shown.empty() ? "" : fmt::format(" (it begins with '{}')", shown));
}

}  // namespace

std::optional<FileIdentity> identify(const std::filesystem::path& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode)) return std::nullopt;
    return FileIdentity{.device = status.st_dev, .inode = status.st_ino};
  }
  if (errno != ENOENT) return std::nullopt;
  // The folder need not exist either: --run-dir makes its folder before files are opened.
  std::error_code error;
  std::filesystem::path place = std::filesystem::absolute(follow_dangling_links(path), error);
  place = std::filesystem::weakly_canonical(place, error);
  return place.empty() ? std::nullopt : std::optional(FileIdentity{.place = std::move(place)});
}

std::vector<InputFile> execution_inputs(const ExecutionOptions& options) {
  std::vector<InputFile> inputs;
  if (options.baseline) inputs.push_back({"--baseline " + options.baseline->string(), *options.baseline});
  if (const std::string& adapter = options.worker.adapter; !adapter.empty()) {
    if (const std::string file = adapter_place(adapter).file; !file.empty()) {
      inputs.push_back({fmt::format("--adapter {}", file), file});
    }
    return inputs;
  }
  for (const std::string& word : worker_command(options.worker).words) {
    inputs.push_back({fmt::format("{} {}", options.worker.command.empty() ? "the worker" : "--worker", word), word});
  }
  return inputs;
}

std::vector<Output> outputs_of(const ExecutionOptions& options) {
  std::vector<Output> outputs;
  const auto add = [&](std::string_view option, const std::optional<std::filesystem::path>& path,
                       std::string_view start = "", std::string_view what = "",
                       std::string(*report)(const RunReport& run) = nullptr) {
    if (path) outputs.push_back({.option = option, .path = *path, .start = start, .what = what, .report = report});
  };
  add("--events", options.events, kEventsStart, "events file");
  add("--junit", options.junit, kJunitStart, "JUnit report", [](const RunReport& run) { return junit_report(run); });
  add("--html", options.html, kHtmlStart, "HTML report", html_report);
  add("--summary", options.summary, kMarkdownStart, "summary", markdown_report);
  add("--trace-run", options.trace_run, kRunTraceStart, "trace of a run", trace_report);
  add("--run-dir", options.config.run_dir);
  add("--capsules", options.config.capsules);
  add("--dump", options.config.dump_dir);
  if (options.config.perf) add("--trace", options.config.perf->trace_dir);
  return outputs;
}

void check_outputs(const std::vector<Output>& outputs, const std::vector<InputFile>& inputs, bool force) {
  const Place standard_out{"stdout", identify("/proc/self/fd/1")};
  const Place standard_error{"stderr", identify("/proc/self/fd/2")};
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Output& output = outputs[i];
    const Place place{output.name(), identify(output.path)};
    for (const InputFile& input : inputs) {
      if (!(output.option == "--events" && input.may_become_events)) expect_different(place, place_of(input));
    }
    for (std::size_t j = 0; j < i; ++j) {
      const Output& other = outputs[j];
      if (!(output.is_folder() && other.is_folder())) expect_different(place, {other.name(), identify(other.path)});
    }
    expect_different(place, standard_out);
    expect_different(place, standard_error);
  }
  for (const InputFile& input : inputs) expect_different(standard_out, place_of(input));
  if (force) return;
  for (const Output& output : outputs) {
    if (!output.is_folder()) expect_own(output);
  }
}

}  // namespace cp_pool
