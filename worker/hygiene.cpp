#include "worker/hygiene.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace cp_pool {

namespace {

std::int64_t count_entries(const char* folder) {
  std::int64_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

// Counts open file descriptors. Since 6.2 Linux reports their number as the size of the folder. On older kernels the
// folder is listed, which opens one more descriptor.
std::int64_t open_descriptors() {
  constexpr const char* kFolder = "/proc/self/fd";
  struct stat told{};
  if (::stat(kFolder, &told) == 0 && told.st_size > 0) return told.st_size;
  return count_entries(kFolder) - 1;
}

// Counts threads: the folder has one link for each thread, and two that every folder has.
std::int64_t threads() {
  constexpr const char* kFolder = "/proc/self/task";
  struct stat told{};
  if (::stat(kFolder, &told) == 0 && told.st_nlink > 2) return static_cast<std::int64_t>(told.st_nlink) - 2;
  return count_entries(kFolder);
}

std::int64_t resident_kib() {
  // The file is read without a stream, whose buffer and locale would double the cost of measuring.
  std::array<char, 128> text{};
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t size = ::read(file, text.data(), text.size() - 1);
  ::close(file);
  long long resident = 0;  // in pages
  if (size <= 0 || std::sscanf(text.data(), "%*d %lld", &resident) != 1) return 0;
  return resident * sysconf(_SC_PAGESIZE) / 1024;
}

}  // namespace

protocol::Hygiene measure_hygiene(int rank) {
  return {rank, resident_kib(), open_descriptors(), threads()};
}

}  // namespace cp_pool
