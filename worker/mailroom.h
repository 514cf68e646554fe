// A queue between threads of one process.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace cp_pool {

template <typename Item>
class Mailroom {
 public:
  using Clock = std::chrono::steady_clock;

  void put(Item item) {
    {
      const std::lock_guard lock(mutex_);
      items_.push_back(std::move(item));
    }
    filled_.notify_one();
  }

  // Returns the next item; nullopt at the deadline. Waits without limit if `deadline` is not set.
  std::optional<Item> take(std::optional<Clock::time_point> deadline) {
    std::unique_lock lock(mutex_);
    const auto filled = [this] { return !items_.empty(); };
    if (!deadline) {
      filled_.wait(lock, filled);
    } else if (!filled_.wait_until(lock, *deadline, filled)) {
      return std::nullopt;
    }
    Item item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

 private:
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<Item> items_;
};

}  // namespace cp_pool
