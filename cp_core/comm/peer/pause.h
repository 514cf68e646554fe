#pragma once

#include <chrono>
#include <thread>

namespace cp_pool {

// Between two looks of a host that waits. Short waits spin: enqueueing an operation takes NCCL tens of microseconds.
// Long ones leave the core to others.
class Pause {
 public:
  void operator()() const {
    using namespace std::chrono_literals;
    if (std::chrono::steady_clock::now() - start_ < 100us) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(50us);
    }
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace cp_pool
