// A worker on CPU ranks whose cases behave as their model says, with the threads and messages of real ranks. Cases of
// any other model pass.
//   waits_for_next  runs until something has been prepared on this rank
//   bad             preparing for it throws
//   endless         preparing for it never ends
//   refused_on_1    the library refuses it on rank 1, while the others wait in a collective
//   refused         the library refuses it on every rank
//   skipped_on_1    rank 1 skips it, and the others run it
//   remarked        passes with a remark
// Each preparation writes "prepared MODEL" to stderr. The rehearsal writes "rehearsed" and then fails. The option
// --no-rehearsal is that of cp-pool-worker.
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string_view>
#include <unistd.h>

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "cp_core/attention/backend_unsupported.h"
#include "worker/protocol/environment.h"
#include "worker/worker_main.h"

namespace cp_pool {
namespace {

class ScriptedRunner final : public CaseRunner {
 public:
  void reset(const at::Device& /*device*/) override {}
  std::string skip_reason(const Case& c, const at::Device& /*device*/) override {
    return c.model == "skipped_on_1" && protocol::read_environment().rank == 1 ? "not on this rank" : "";
  }
  std::string backend(const Case& /*c*/, const at::Device& /*device*/) override { return "scripted"; }
  bool prepares(const at::Device& /*device*/) override { return true; }

  std::vector<Preparation> prepare(const Case& c, int /*rank*/, const at::Device& /*device*/) override {
    return {[this, model = c.model] { do_piece(model); }};
  }

  std::vector<Preparation> rehearsals(const at::Device& /*device*/) override {
    return {[] {
      fmt::print(stderr, "rehearsed\n");
      throw std::runtime_error("the rehearsal failed");
    }};
  }

  RankReport run(const Case& c, const CpGroups& groups, const RunOptions& /*options*/) override {
    RankReport report;
    if (c.model == "waits_for_next") {
      std::unique_lock lock(mutex_);
      done_.wait(lock, [this] { return prepared_; });
    }
    if (c.model == "refused" || (c.model == "refused_on_1" && groups.cp->rank() == 1)) {
      throw BackendUnsupported("the library refuses these tiles");
    }
    if (c.model == "refused_on_1") {
      at::Tensor sum = at::zeros({1});
      groups.cp->all_reduce(sum, ReduceOp::sum, "what the refusing rank does not join")->wait();
    }
    if (c.model == "remarked") report.remarks.insert("some tiles ran as math");
    return report;
  }

 private:
  void do_piece(const std::string& model) {
    fmt::print(stderr, "prepared {}\n", model);
    {
      const std::lock_guard lock(mutex_);
      prepared_ = true;
      done_.notify_all();
    }
    if (model == "bad") throw std::runtime_error("nothing can be prepared for this case");
    while (model == "endless") pause();
  }

  std::mutex mutex_;
  std::condition_variable done_;
  bool prepared_ = false;
};

int run(std::span<char*> arguments) {
  static ScriptedRunner runner;  // static: pieces without end may still use it when the process ends
  StartupClock clock;
  const Options options{.rehearses = arguments.size() < 2 || std::string_view(arguments[1]) != "--no-rehearsal"};
  return serve_as_rank(protocol::read_environment(), options, runner, clock, STDIN_FILENO, STDOUT_FILENO);
}

}  // namespace
}  // namespace cp_pool

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  int exit_code = 1;
  try {
    exit_code = cp_pool::run({argv, static_cast<std::size_t>(argc)});
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
  }
  std::fflush(nullptr);
  _exit(exit_code);
}
