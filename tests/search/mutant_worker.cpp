// cp-pool-worker on CPU ranks with one deliberate fault of cp_core/mutants.def, which CP_POOL_TEST_MUTANT names.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <unistd.h>

#include <fmt/format.h>

#include "cp_core/mutation.h"
#include "worker/cp_core_runner.h"
#include "worker/protocol/environment.h"
#include "worker/worker_main.h"

namespace cp_pool {
namespace {

Mutant named_mutant() {
  const char* const name = std::getenv("CP_POOL_TEST_MUTANT");
  if (name == nullptr) throw std::invalid_argument("CP_POOL_TEST_MUTANT names no mutant");
  const auto found = std::ranges::find(all_mutants(), std::string_view(name), &MutantInfo::name);
  if (found != all_mutants().end()) return found->mutant;
  throw std::invalid_argument(fmt::format("CP_POOL_TEST_MUTANT={}: mutants.def has no such mutant", name));
}

int run() {
  static const ScopedMutant on(named_mutant());
  static CpCoreRunner runner;
  StartupClock clock;
  return serve_as_rank(protocol::read_environment(), {}, runner, clock, STDIN_FILENO, STDOUT_FILENO);
}

}  // namespace
}  // namespace cp_pool

int main() {
  std::signal(SIGPIPE, SIG_IGN);
  int exit_code = 1;
  try {
    exit_code = cp_pool::run();
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
  }
  std::fflush(nullptr);
  _exit(exit_code);
}
