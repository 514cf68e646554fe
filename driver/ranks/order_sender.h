// Writes orders to the ranks' connections, and sends each a beat once per beat_every from a thread of its own. The
// driver's main thread may be busy, writing to a terminal that accepts nothing or looking up names of frames, for
// longer than ranks tolerate silence. The thread takes no lock but the object's mutex, so that this process may fork
// beside it (driver/os/helper_process.h).
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

  // fd: a non-blocking socket, not owned. It must stay open until remove() has returned.
  void add(int fd);
  void remove(int fd);
  // Sends a line, which is shorter than any socket buffer. A socket that does not accept it at once is shut down, so
  // that its reader sees the end.
  void send(int fd, std::string_view line);

 private:
  void beat(const std::stop_token& stop);
  static void write(int fd, std::string_view line);

  std::chrono::milliseconds beat_every_;
  std::string line_;  // of a beat
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::vector<int> fds_;
  std::jthread thread_;
};

}  // namespace cp_pool
