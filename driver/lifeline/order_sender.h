// Writes orders to the ranks' connections, and a beat to each once a second from a thread of its own: the driver's only
// thread may write to a terminal that takes nothing, or look up names of frames, for longer than ranks do without word.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace cp_pool {

class OrderSender {
 public:
  explicit OrderSender(std::chrono::milliseconds beat_every);

  // fd: a socket that does not block. It stays open until remove() has returned.
  void add(int fd);
  void remove(int fd);
  // A socket that does not take the line at once, which is shorter than any buffer, is shut down: its reader sees the
  // end.
  void send(int fd, std::string_view line);

 private:
  void beat(const std::stop_token& stop);
  static void write(int fd, std::string_view line);

  std::chrono::milliseconds beat_every_;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::vector<int> fds_;
  std::jthread thread_;
};

}  // namespace cp_pool
