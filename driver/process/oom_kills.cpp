#include "driver/process/oom_kills.h"

#include <fstream>
#include <string>

namespace cp_pool {

std::optional<std::int64_t> oom_kills() {
  std::ifstream vmstat("/proc/vmstat");
  return oom_kills_in(vmstat);
}

std::optional<std::int64_t> oom_kills_in(std::istream& vmstat) {
  std::string name;
  std::int64_t count = 0;
  while (vmstat >> name >> count) {
    if (name == "oom_kill") return count;
  }
  return std::nullopt;
}

}  // namespace cp_pool
