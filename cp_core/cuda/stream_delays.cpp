#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>

#include "cp_core/cuda/delay.h"

namespace cp_pool::cuda {
namespace {

constexpr const char* kVariable = "CP_POOL_DEBUG_STREAM_DELAYS";
constexpr std::uint64_t kDefaultMicroseconds = 500;
constexpr std::uint64_t kGoldenGamma = 0x9E3779B97F4A7C15;

// SplitMix64 (Steele, Lea, Flood 2014).
std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EB;
  return z ^ (z >> 31U);
}

std::uint64_t parse(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
  if (error != std::errc() || end != text.end()) {
    throw std::invalid_argument(fmt::format("{}: '{}' is no number", kVariable, text));
  }
  return value;
}

}  // namespace

StreamDelays StreamDelays::from_environment(int rank) {
  StreamDelays delays;
  const char* variable = std::getenv(kVariable);
  if (variable == nullptr || *variable == '\0') return delays;
  const std::string_view text = variable;
  const std::size_t colon = text.find(':');
  const std::uint64_t seed = parse(text.substr(0, colon));
  const std::uint64_t most = colon == std::string_view::npos ? kDefaultMicroseconds : parse(text.substr(colon + 1));
  delays.state_ = mix(mix(seed) + static_cast<std::uint64_t>(rank) * kGoldenGamma);
  delays.most_nanoseconds_ = most * 1000;
  return delays;
}

void StreamDelays::next() {
  if (most_nanoseconds_ == 0) return;
  state_ += kGoldenGamma;
  delay(static_cast<std::int64_t>(mix(state_) % (most_nanoseconds_ + 1)));
}

}  // namespace cp_pool::cuda
