#include "tests/driver/fake_worker/state.h"

#include <cstdlib>
#include <fcntl.h>
#include <map>
#include <random>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "tests/driver/fake_worker/faults.h"

namespace cp_pool::fake {

namespace {

constexpr const char* kVariable = "CP_POOL_TEST_LEFT";

// State that is global to the process, like that of real workers.
struct Process {
  std::minstd_rand generator;
  std::map<std::string, int> groups;         // communicators, by name
  std::map<std::string, std::string> plans;  // by the shape that each is made for
  std::vector<std::string> memory;
};

Process& process() {
  static Process one;
  return one;
}

void leave(const std::string& kind) {
  if (kind == "leaves_seed") process().generator.seed(7);
  if (kind == "leaves_variable") ::setenv(kVariable, "1", 1);
  if (kind == "leaves_group") process().groups["ring"] = 4;
  if (kind == "leaves_plan") process().plans["heads=4"] = "of heads=8";
  if (kind == "leaves_memory") process().memory.emplace_back(std::size_t{1} << 20U, 'x');
}

}  // namespace

int State::count() const {
  const int fd = ::open(counter_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  struct stat info{};
  ::fstat(fd, &info);
  write_all(fd, ".");
  ::close(fd);
  return static_cast<int>(info.st_size);
}

bool State::run(const std::string& kind) {
  ++cases_;
  leave(kind);
  if (kind == "uses_seed") return process().generator != std::minstd_rand{};
  if (kind == "uses_variable") return std::getenv(kVariable) != nullptr;
  if (kind == "uses_group") return process().groups.contains("ring");
  if (kind == "uses_plan") return process().plans.contains("heads=4");
  if (kind == "uses_memory") return process().memory.size() >= 2;
  if (kind == "fails_as_third") return cases_ == 3;
  if (kind == "fails_one_in_three") return count() % 3 == 0;
  if (kind == "errors_at_first") return count() == 0;
  return false;
}

}  // namespace cp_pool::fake
