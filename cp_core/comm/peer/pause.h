#pragma once

#include <chrono>
#include <thread>

namespace cp_pool {

// The pause between two polls of a host thread. Short waits spin, since NCCL takes tens of microseconds to enqueue an
// operation. Longer waits leave the core to other threads.
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
