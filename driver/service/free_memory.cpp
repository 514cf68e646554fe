#include "driver/service/free_memory.h"

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

namespace cp_pool::service {
namespace {

constexpr std::int64_t kPart = 20;  // less than 1 / 20 available is too little

std::optional<std::int64_t> number_in(const char* file) {
  std::ifstream in(file);
  std::int64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;  // the file has "max", or does not exist
}

bool machine_is_short() {
  std::ifstream in("/proc/meminfo");
  std::int64_t total = 0;
  std::int64_t available = -1;
  std::string name;
  std::int64_t value = 0;
  for (std::string unit; in >> name >> value && std::getline(in, unit);) {
    if (name == "MemTotal:") total = value;
    if (name == "MemAvailable:") available = value;
  }
  return total > 0 && available >= 0 && available < total / kPart;
}

// memory.current includes the page cache, which the kernel can drop; so the page cache is subtracted.
bool group_is_short() {
  const auto most = number_in("/sys/fs/cgroup/memory.max");
  const auto used = number_in("/sys/fs/cgroup/memory.current");
  if (!most || !used || *most <= 0) return false;
  std::ifstream in("/sys/fs/cgroup/memory.stat");
  std::int64_t files = 0;
  std::string name;
  for (std::int64_t value = 0; in >> name >> value;) {
    if (name == "inactive_file" || name == "active_file") files += value;
  }
  return *most - (*used - files) < *most / kPart;
}

}  // namespace

bool memory_is_short() {
  return machine_is_short() || group_is_short();
}

}  // namespace cp_pool::service
