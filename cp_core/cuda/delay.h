// Deliberate delays on CUDA streams. What runs after a delay runs late, so an operation that fails to wait for it reads
// what was there before, and a test sees it.
#pragma once

#include <cstdint>

namespace cp_pool::cuda {

// Keeps the current stream busy for this long, on one thread of the device.
void delay(std::int64_t nanoseconds);

// Pseudo-random delays, the same ones for the same seed. Off unless the environment variable
// CP_POOL_DEBUG_STREAM_DELAYS=<seed>[:<most microseconds>] is set; without the second number, 500.
class StreamDelays {
 public:
  // Reads the variable. Ranks, told apart by `rank`, get different delays. Throws std::invalid_argument.
  static StreamDelays from_environment(int rank);

  // Delays the current stream, if delays are on.
  void next();

 private:
  std::uint64_t state_ = 0;
  std::uint64_t most_nanoseconds_ = 0;  // 0: off
};

}  // namespace cp_pool::cuda
