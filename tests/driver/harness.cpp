#include "tests/driver/harness.h"

#include <cmath>
#include <unistd.h>

#include <fmt/format.h>

#include "driver/os/process_tree.h"
#include "driver/testing/attention.h"

namespace cp_pool::driver_test {
namespace {

// The environment entry that marks every process which the test starts, directly or indirectly.
const std::string& mark() {
  static const std::string text = [] {
    const std::string value =
        fmt::format("{}-{}", ::getpid(), std::chrono::steady_clock::now().time_since_epoch().count());
    ::setenv("CP_POOL_TEST_MARK", value.c_str(), 1);
    return "CP_POOL_TEST_MARK=" + value;
  }();
  return text;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool is_dead(const std::string& stat) {
  const std::size_t at = stat.rfind(") ");
  return at == std::string::npos || stat[at + 2] == 'Z' || stat[at + 2] == 'X';
}

}  // namespace

std::vector<std::string> Recorder::outcomes() const {
  std::vector<std::string> out;
  for (const CaseFinished& finished : all<CaseFinished>()) {
    if (finished.index >= out.size()) out.resize(finished.index + 1);
    out[finished.index] = to_string(finished.outcome);
  }
  return out;
}

const CaseFinished& Recorder::finished(std::size_t index) const {
  for (const Event& event : events) {
    const auto* finished = std::get_if<CaseFinished>(&event);
    if (finished != nullptr && finished->index == index) return *finished;
  }
  throw std::out_of_range(fmt::format("case {} has not finished", index));
}

std::vector<std::string> Recorder::retirements() const {
  std::vector<std::string> out;
  for (const PoolRetired& retired : all<PoolRetired>()) out.emplace_back(to_string(retired.reason));
  return out;
}

Item fake_case(const std::string& model, int world_size) {
  Item out;
  out.id = "fake/" + model;
  test::attention(out.payload).suite = "fake";
  test::attention(out.payload).model = model;
  test::attention(out.payload).cp_size = world_size;
  out.rerun = "cp-pool submit " + out.id;
  return out;
}

std::vector<Item> fake_cases(const std::vector<std::string>& models, int world_size) {
  std::vector<Item> out;
  out.reserve(models.size());
  for (const std::string& model : models) out.push_back(fake_case(model, world_size));
  return out;
}

RunConfig fake_config(std::vector<std::string> options) {
  mark();
  RunConfig config;
  config.worker_command = {CP_POOL_FAKE_WORKER};
  config.worker_command.insert(config.worker_command.end(), options.begin(), options.end());
  config.timeout = std::chrono::seconds(30);
  config.start_timeout = std::chrono::seconds(30);
  config.diagnosis_grace = std::chrono::seconds(30);
  config.stack_wait = std::chrono::milliseconds(100);
  config.grace = std::chrono::milliseconds(200);
  if (const char* const server = std::getenv("CP_POOL_TEST_FORK_SERVER"))
    config.fork_server = {"python3", server, "exec"};
  config.slots = 2;  // the same on every machine, because it decides which pools run side by side
  return config;
}

RunFinished run(const std::vector<Item>& cases, const RunConfig& config, Recorder& recorder) {
  RunStarted header;
  header.cases = cases.size();
  header.device = config.device;
  return run_cases(cases, config, header, recorder).finished;
}

Recorder run(const std::vector<Item>& cases, const RunConfig& config) {
  Recorder recorder;
  run(cases, config, recorder);
  return recorder;
}

std::chrono::milliseconds time_of_a_pass(const RunConfig& config) {
  return std::chrono::milliseconds(std::llround(run(fake_cases({"pass"}), config).end().duration_ms));
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator fds("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(fds), end(fds)));
}

std::vector<std::string> processes_left() {
  std::vector<std::string> out;
  for (const ProcessInfo& process : list_descendants(::getpid())) {
    out.push_back(fmt::format("{} ({})", process.pid, process.state));
  }
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos || pid == std::to_string(::getpid())) continue;
    if (read_file(entry.path() / "environ").find(mark()) == std::string::npos) continue;
    if (!is_dead(read_file(entry.path() / "stat"))) out.push_back(pid + " (marked)");
  }
  return out;
}

double ms_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

std::jthread when_logged(const std::filesystem::path& log, const std::string& text, const std::function<void()>& then) {
  return std::jthread([=](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (read_file(log).find(text) != std::string::npos) return then();
      std::this_thread::yield();
    }
  });
}

}  // namespace cp_pool::driver_test
