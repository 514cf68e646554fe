// A rank's end of its lifeline to the driver (worker/protocol/lifeline_messages.h), which a rank has that a launcher
// started on any host: CP_POOL_LIFELINE is set. A thread of its own sends a beat a second and reads what the driver
// says. It takes no lock of the interpreter's and waits for nothing of the rank's work. It ends the process with exit
// code 75 when the driver is gone: at the end of the connection, or 5 s without a word, unless the driver has said that
// it pauses. Times are those of the monotonic clock, so that clocks of hosts may differ.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "worker/protocol/environment.h"
#include "worker/protocol/lifeline_messages.h"

namespace cp_pool {

class Lifeline {
 public:
  // Connects, and makes fd 2 a connection to the driver; fd 1 too if it is the same as fd 2. nullptr if
  // CP_POOL_LIFELINE is not set. There is one lifeline in a process, which lives to its end: further calls return it.
  // Ends the process with 75 if the driver cannot be reached. Throws protocol::EnvironmentError.
  static Lifeline* start(const protocol::RankEnvironment& environment);
  // nullptr: there is none.
  static Lifeline* current();

  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

  void tell_rendezvous(const lifeline::Rendezvous& where);
  // Waits for rank 0's, as long as the driver lives.
  lifeline::Rendezvous await_rendezvous();
  // That the process is about to end. Returns when it is on its way, or after half a second.
  void tell_ending(int exit_code);
  // Of this host, on the way to the driver.
  [[nodiscard]] std::string local_address() const;

 private:
  using Clock = std::chrono::steady_clock;

  Lifeline(int rank, int messages_fd, int launchers_stderr, std::optional<timer_t> last_resort);
  ~Lifeline() = default;

  void serve();
  void beat();
  void take_bytes(std::string_view bytes);
  void take_line(std::string_view line);
  void heard();
  // Whether all is written.
  bool write_now(std::string_view line);
  void write_within(std::string_view line, std::chrono::milliseconds limit);
  [[noreturn]] void end_without_driver(std::string_view why) const;

  int rank_;
  int fd_;
  int launchers_stderr_;
  std::string host_;
  std::optional<timer_t> last_resort_;
  Clock::time_point last_heard_;
  bool paused_ = false;
  std::string line_;  // the start of one of the driver's

  std::mutex write_mutex_;
  std::string unwritten_;  // the rest of a line

  std::mutex mutex_;
  std::condition_variable told_;
  std::optional<lifeline::Rendezvous> rendezvous_;
  std::thread thread_;
};

// Lifeline::tell_ending, if there is a lifeline.
void tell_ending(int exit_code);

}  // namespace cp_pool
