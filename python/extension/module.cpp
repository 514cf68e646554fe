// The module cp_pool._worker: the worker's C++ in a user's interpreter.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <pybind11/stl.h>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cases/case_json.h"
#include "cp_core/run_case/run_case.h"
#include "python/extension/group_operations.h"
#include "python/extension/python_implementation.h"
#include "python/extension/python_runner.h"
#include "worker/fault.h"
#include "worker/lifeline.h"
#include "worker/protocol/environment.h"
#include "worker/rank_outcome.h"
#include "worker/stack_dump.h"
#include "worker/startup_clock.h"
#include "worker/worker_main.h"

namespace cp_pool {
namespace {

// The runner of this process. It is never destroyed, since threads of the worker may use it until the process ends.
PythonRunner* the_runner = nullptr;

// Returns the given faults and those of CP_POOL_INJECT, as in cp-pool-worker.
std::vector<Fault> read_faults(const std::vector<std::string>& given) {
  std::vector<Fault> faults;
  faults.reserve(given.size());
  for (const std::string& fault : given) faults.push_back(parse_fault(fault));
  if (const char* const more = std::getenv("CP_POOL_INJECT"))
    std::ranges::move(parse_faults(more), std::back_inserter(faults));
  return faults;
}

int serve(const py::object& runner, const std::vector<std::string>& faults, bool rehearses, int stdout_fd,
          int stack_signal, int interrupt_signal) {
  StartupClock clock;
  Options options;
  options.rehearses = rehearses;
  try {
    options.faults = read_faults(faults);
  } catch (const FaultSyntaxError& error) {
    fmt::print(stderr, "cp-pool: {}\n", error.what());
    return kExitUsage;
  }
  show_also(stack_signal);
  the_runner = new PythonRunner(runner, interrupt_signal);  // NOLINT(cppcoreguidelines-owning-memory)
  const py::gil_scoped_release released;
  return worker_main(options, *the_runner, clock, stdout_fd);
}

// Hides the GPUs of other ranks. Returns CUDA_VISIBLE_DEVICES afterwards; nullopt if it is not set, or if the
// environment is not that of a rank.
std::optional<std::string> hide_other_gpus() {
  try {
    own_gpu(protocol::read_environment());
  } catch (const protocol::EnvironmentError&) {  // serve() says what is wrong with it
    return std::nullopt;
  }
  return protocol::process_variable("CUDA_VISIBLE_DEVICES");
}

// Starts the lifeline, as cp-pool-worker does before it loads anything else.
void start_lifeline() {
  const py::gil_scoped_release released;
  try {
    Lifeline::start(protocol::read_environment());
  } catch (const protocol::EnvironmentError&) {  // serve() says what is wrong with it
  }
}

// Says before there are ranks which cases the adapter would skip, and how much each rank would compute.
class Outlook {
 public:
  Outlook(const py::object& runner, int interrupt_signal)
      : breaker_(interrupt_signal), implementation_(runner, breaker_) {}

  // Returns why the case would be skipped, as a sentence; empty if it would run. case_json: the keys of a case. device:
  // "cpu" or "cuda".
  std::string why_skipped(const std::string& case_json, const std::string& device) {
    const Case c = parse_case(nlohmann::json::parse(case_json), "case");
    try {
      return cp_pool::why_skipped(implementation_, c, at::Device(device), c.cp_size);
    } catch (const RunnerError&) {
      return {};  // the adapter's shard function fails; the case will run and report that
    }
  }

  // Returns the pairs that each rank would compute, for a case that is not skipped.
  std::vector<std::int64_t> pairs(const std::string& case_json) {
    return expected_pairs(implementation_, parse_case(nlohmann::json::parse(case_json), "case"));
  }

 private:
  WaitBreaker breaker_;
  PythonImplementation implementation_;
};

int freed() {
  return the_runner == nullptr ? 0 : static_cast<int>(the_runner->freed());
}

}  // namespace
}  // namespace cp_pool

PYBIND11_MODULE(_worker, module) {
  module.doc() = "The worker of cp-pool in this interpreter";
  module.def(
      "serve", &cp_pool::serve, py::arg("runner"), py::arg("faults"), py::arg("rehearses"), py::arg("stdout_fd"),
      py::arg("stack_signal"), py::arg("interrupt_signal"),
      "Serves as one rank of a group, as the environment says, until the driver ends it; returns the exit code.");
  module.def("hide_other_gpus", &cp_pool::hide_other_gpus,
             "Chooses this rank's GPU. Call before anything uses CUDA. Returns CUDA_VISIBLE_DEVICES as it is then.");
  module.def("start_lifeline", &cp_pool::start_lifeline,
             "Connects to the driver if CP_POOL_LIFELINE is set: fd 2 is a connection to it from then on.");
  module.def("tell_ending", &cp_pool::tell_ending, py::arg("exit_code"),
             "Tells the driver, if there is a lifeline, how this process is about to end.");
  py::class_<cp_pool::Outlook>(module, "Outlook", "What an adapter would skip, and how much each rank would compute")
      .def(py::init<const py::object&, int>(), py::arg("runner"), py::arg("interrupt_signal"))
      .def("why_skipped", &cp_pool::Outlook::why_skipped, py::arg("case_json"), py::arg("device"),
           "Why it would skip the case, as a sentence; empty if it would run.")
      .def(
          "pairs", &cp_pool::Outlook::pairs, py::arg("case_json"),
          "How many pairs of a query and a key each rank would compute, over its heads; for a case that it would run.");
  module.def(
      "watch_group_operations", [] { cp_pool::watch_group_operations(1); },
      "Watches from now on whether an operation on a group of torch.distributed begins.");
  module.def("first_group_operation", &cp_pool::first_group_operation,
             "The first operation that has begun since; empty if none has.");
  module.def("freed", &cp_pool::freed, "Why waits of the running case are being ended: WaitBreaker::Reason.");
}
