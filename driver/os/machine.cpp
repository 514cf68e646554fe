#include "driver/os/machine.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>
#include <fstream>
#include <limits>
#include <system_error>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <fmt/format.h>

namespace cp_pool {

namespace {

constexpr double kNoticed = 1;  // in seconds; smaller steps are ordinary adjustments of a clock

std::chrono::nanoseconds time_of(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

double in_seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

constexpr std::int64_t kPart = 20;  // less than 1 / 20 available is too little

std::optional<std::int64_t> number_in(const char* file) {
  std::ifstream in(file);
  std::int64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;  // the file has "max", or does not exist
}

std::optional<std::int64_t> count_in_file(const char* file, std::string_view name) {
  std::ifstream lines(file);
  return count_in(lines, name);
}

}  // namespace

MachineClocks MachineClocks::now() {
  return {.wall = time_of(CLOCK_REALTIME), .running = time_of(CLOCK_MONOTONIC), .boot = time_of(CLOCK_BOOTTIME)};
}

std::string describe_clock_change(const MachineClocks& before, const MachineClocks& after) {
  const double set = in_seconds((after.wall - before.wall) - (after.boot - before.boot));
  const double slept = in_seconds((after.boot - before.boot) - (after.running - before.running));
  if (slept > kNoticed) return fmt::format("{} for {:.1f} s meanwhile", kMachineSlept, slept);
  if (std::abs(set) > kNoticed) return fmt::format("{} by {:+.1f} s meanwhile", kClockWasSet, set);
  return "";
}

std::string loopback_trouble() {
  using asio::ip::tcp;
  std::error_code error = std::make_error_code(std::errc::timed_out);
  try {
    asio::io_context io;
    const tcp::acceptor server(io, {asio::ip::address_v4::loopback(), 0});
    tcp::socket client(io);
    client.async_connect(server.local_endpoint(), [&error](std::error_code result) { error = result; });
    io.run_for(std::chrono::seconds{1});
  } catch (const std::system_error& e) {
    error = e.code();
  }
  const int number = error.value();
  if (number == 0 || number == EMFILE || number == ENFILE) return "";
  return fmt::format("127.0.0.1 cannot be reached ({}): is the loopback interface up?", std::strerror(number));
}

std::optional<std::int64_t> oom_kills() {
  return count_in_file("/proc/vmstat", "oom_kill");
}

std::optional<std::int64_t> count_in(std::istream& lines, std::string_view name) {
  std::string found;
  for (std::int64_t count = 0; lines >> found >> count;) {
    if (found == name) return count;
    lines.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

double own_cpu_ms() {
  return std::chrono::duration<double, std::milli>(time_of(CLOCK_PROCESS_CPUTIME_ID)).count();
}

bool memory_is_short() {
  const auto total = count_in_file("/proc/meminfo", "MemTotal:");
  const auto available = count_in_file("/proc/meminfo", "MemAvailable:");
  if (total && available && *available < *total / kPart) return true;
  const auto most = number_in("/sys/fs/cgroup/memory.max");
  const auto used = number_in("/sys/fs/cgroup/memory.current");
  if (!most || !used || *most <= 0) return false;
  // memory.current includes the page cache, which the kernel can drop; so the page cache is subtracted.
  constexpr const char* kStatistics = "/sys/fs/cgroup/memory.stat";
  const std::int64_t files =
      count_in_file(kStatistics, "inactive_file").value_or(0) + count_in_file(kStatistics, "active_file").value_or(0);
  return *most - (*used - files) < *most / kPart;
}

}  // namespace cp_pool
