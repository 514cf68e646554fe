// Deliberate delays on CUDA streams. Work after a delay runs late, so an operation that fails to wait for it reads old
// data, which a test sees.
#pragma once

#include <cstdint>

struct CUstream_st;  // cudaStream_t points to one

namespace cp_pool::cuda {

// Keeps the current stream busy for this long, on one thread of the device: where a wait is missing, what should have
// waited overtakes.
void delay(std::int64_t nanoseconds);
// Its launch, apart: LibTorch's headers would cost nvcc ten times what the kernel does.
void launch_delay(std::uint64_t nanoseconds, CUstream_st* stream);

struct DelaySettings {
  std::uint64_t seed = 0;
  std::uint64_t most_microseconds = 0;  // 0: off
};

// Pseudo-random delays, the same ones for the same seed. Off unless the environment variable
// CP_POOL_DEBUG_STREAM_DELAYS=<seed>[:<most microseconds>] is set; without the second number, 500.
class StreamDelays {
 public:
  StreamDelays() = default;  // off until set_stream_delays
  // Reads the variable. Those of different `salt` (ranks, and users in a rank) get different delays. Throws
  // std::invalid_argument.
  static StreamDelays from_environment(std::uint64_t salt);

  // Delays the current stream in one call out of four, if delays are on. The device stays free for other streams and
  // processes; delays of a process that are due at the same time follow each other.
  void next();

 private:
  void start(const DelaySettings& settings);

  std::uint64_t salt_ = 0;
  std::uint64_t version_ = 0;  // of the process's settings
  std::uint64_t state_ = 0;
  std::uint64_t most_nanoseconds_ = 0;
};

// Changes the settings of all StreamDelays of the process, whatever the environment says. Each begins anew.
void set_stream_delays(const DelaySettings& settings);

// The StreamDelays of what this process enqueues outside its communicators. From any thread.
void random_delay();
// Takes them from the environment, other ones than the communicators of this rank have.
void begin_random_delays(int rank);

}  // namespace cp_pool::cuda
