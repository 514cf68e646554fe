// Deliberate delays on CUDA streams. Work after a delay runs late, so an operation that fails to wait for that work
// reads old data, which a test notices.
#pragma once

#include <cstdint>

namespace cp_pool::cuda {

struct DelaySettings {
  std::uint64_t seed = 0;
  std::uint64_t most_microseconds = 0;  // the longest delay; 0: no delays
};

// Pseudo-random delays, which are the same for the same seed. There are none unless the environment variable
// CP_POOL_DEBUG_STREAM_DELAYS=<seed>[:<most microseconds>] is set (500 us without the second number) or
// set_stream_delays() is called.
class StreamDelays {
 public:
  StreamDelays() = default;  // without delays until set_stream_delays()
  // Reads the environment variable. Objects with different `salt` (ranks, and several users in a rank) have different
  // delays. Throws std::invalid_argument.
  static StreamDelays from_environment(std::uint64_t salt);

  // Delays the current stream in one call out of four, if delays are on. The device stays free for other streams and
  // processes. Delays of a process that are due at the same time run one after the other.
  void next();

 private:
  void start(const DelaySettings& settings);

  std::uint64_t salt_ = 0;
  std::uint64_t version_ = 0;  // the version of the process's settings that is in use
  std::uint64_t state_ = 0;
  std::uint64_t most_nanoseconds_ = 0;
};

// Replaces the settings of all StreamDelays of the process, whatever the environment says, and restarts their
// sequences.
void set_stream_delays(const DelaySettings& settings);

// Calls next() of the StreamDelays for work that this process enqueues outside its communicators. Callable from any
// thread.
void random_delay();
// Reads the settings of random_delay() from the environment. Its delays differ from those of this rank's communicators.
void begin_random_delays(int rank);

}  // namespace cp_pool::cuda
