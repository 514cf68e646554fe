#include "driver/triage/machine_signs.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "driver/process/machine_clocks.h"

namespace cp_pool {

namespace {

struct Sign {
  std::string_view text;  // in lower case; in the failure any case matches
  std::string_view what;
};

// Texts of the driver, of CUDA (cudaGetErrorString), of NCCL and of the kernel's log.
constexpr std::array kSigns{
    Sign{"the kernel killed a process as memory ran out", "memory ran out, and the kernel killed a process"},
    Sign{kClockWasSet, "the clock was set"},
    Sign{kMachineSlept, "the machine slept"},
    Sign{"uncorrectable ecc error", "a device failed"},
    Sign{"uncorrectable nvlink error", "a device failed"},
    Sign{"fallen off the bus", "a device failed"},
    Sign{"gpu is lost", "a device failed"},
    Sign{"no cuda-capable device is detected", "a device was not there"},
    Sign{"cuda-capable device(s) is/are busy or unavailable", "a device was not available"},
    Sign{"no space left on device", "a disk or the shared memory was full"},
};

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

// The line of the text that has the sign.
std::string line_at(std::string_view text, std::size_t at) {
  constexpr std::size_t kMostBytes = 300;
  const std::size_t before = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
  const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
  return std::string(text.substr(begin, std::min(text.find('\n', at) - begin, kMostBytes)));
}

std::string sign_in(std::string_view text) {
  const std::string small = lower(text);
  for (const Sign& sign : kSigns) {
    const std::size_t at = small.find(sign.text);
    if (at != std::string::npos) return fmt::format("{} (\"{}\")", sign.what, line_at(text, at));
  }
  return "";
}

}  // namespace

std::string machine_sign(const CaseFinished& event) {
  if (!is_failure(event.outcome)) return "";
  std::string sign = sign_in(event.reason);
  for (const protocol::RankResult& rank : event.ranks) {
    if (sign.empty()) sign = sign_in(rank.error);
  }
  for (const StderrTail& tail : event.stderr_tails) {
    if (sign.empty() && event.outcome != CaseOutcome::fail) sign = sign_in(tail.text);
  }
  return sign;
}

}  // namespace cp_pool
