#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <thread>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

#include "cases/parse_number.h"
#include "cp_core/cuda/delay.h"

namespace cp_pool::cuda {
namespace {

constexpr const char* kVariable = "CP_POOL_DEBUG_STREAM_DELAYS";
constexpr std::uint64_t kDefaultMicroseconds = 500;
constexpr std::uint64_t kOneIn = 4;  // one call of next() in this many delays, on average
constexpr std::uint64_t kGoldenGamma = 0x9E3779B97F4A7C15;

// SplitMix64 (Steele, Lea, Flood 2014).
std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EB;
  return z ^ (z >> 31U);
}

std::uint64_t parse(std::string_view text) {
  const auto value = parse_number<std::uint64_t>(text);
  if (!value) throw std::invalid_argument(fmt::format("{}: '{}' is no number", kVariable, text));
  return *value;
}

// The settings of the last set_stream_delays().
class ProcessSettings {
 public:
  // How often the settings have been set.
  [[nodiscard]] std::uint64_t version() const { return version_.load(std::memory_order_acquire); }
  [[nodiscard]] DelaySettings get() const {
    const std::lock_guard lock(mutex_);
    return settings_;
  }
  void set(const DelaySettings& settings) {
    const std::lock_guard lock(mutex_);
    settings_ = settings;
    version_.fetch_add(1, std::memory_order_release);
  }

 private:
  mutable std::mutex mutex_;
  DelaySettings settings_;
  std::atomic<std::uint64_t> version_{0};
};

ProcessSettings& process_settings() {
  static ProcessSettings settings;
  return settings;
}

// A stream calls this host function to wait. A kernel that waits would keep other ranks off a shared GPU for whole time
// slices.
void CUDART_CB sleep_for_nanoseconds(void* nanoseconds) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(reinterpret_cast<std::intptr_t>(nanoseconds)));
}

void sleep_in_stream(std::uint64_t nanoseconds) {
  // The pointer value is the number itself, since replays of a graph call the function again.
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  void* argument = reinterpret_cast<void*>(static_cast<std::intptr_t>(nanoseconds));
  C10_CUDA_CHECK(cudaLaunchHostFunc(c10::cuda::getCurrentCUDAStream(), sleep_for_nanoseconds, argument));
}

}  // namespace

void set_stream_delays(const DelaySettings& settings) {
  process_settings().set(settings);
}

StreamDelays StreamDelays::from_environment(std::uint64_t salt) {
  StreamDelays delays;
  delays.salt_ = salt;
  const char* variable = std::getenv(kVariable);
  if (variable == nullptr || *variable == '\0') return delays;
  const std::string_view text = variable;
  const std::size_t colon = text.find(':');
  const std::uint64_t seed = parse(text.substr(0, colon));
  const std::uint64_t most = colon == std::string_view::npos ? kDefaultMicroseconds : parse(text.substr(colon + 1));
  delays.start({.seed = seed, .most_microseconds = most});
  return delays;
}

void StreamDelays::start(const DelaySettings& settings) {
  state_ = mix(mix(settings.seed) + salt_ * kGoldenGamma);
  most_nanoseconds_ = settings.most_microseconds * 1000;
}

void StreamDelays::next() {
  if (const std::uint64_t version = process_settings().version(); version != version_) {
    version_ = version;
    start(process_settings().get());
  }
  if (most_nanoseconds_ == 0) return;
  state_ += kGoldenGamma;
  const std::uint64_t random = mix(state_);
  // Host functions of all streams run one after another, so not every call delays: a stream without a delay can then
  // overtake a delayed one.
  if (random % kOneIn == 0) sleep_in_stream(random / kOneIn % (most_nanoseconds_ + 1));
}

namespace {

struct SharedDelays {
  std::mutex mutex;
  StreamDelays delays;
};

SharedDelays& delays_outside_communicators() {
  static SharedDelays shared;
  return shared;
}

}  // namespace

void random_delay() {
  SharedDelays& shared = delays_outside_communicators();
  const std::lock_guard lock(shared.mutex);
  shared.delays.next();
}

void begin_random_delays(int rank) {
  constexpr std::uint64_t kOutsideCommunicators = 1U << 16U;
  SharedDelays& shared = delays_outside_communicators();
  const std::lock_guard lock(shared.mutex);
  shared.delays = StreamDelays::from_environment(kOutsideCommunicators + static_cast<std::uint64_t>(rank));
}

}  // namespace cp_pool::cuda
