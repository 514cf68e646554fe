// A rank's end of its lifeline to the driver (worker/protocol/lifeline_messages.h). A rank that a launcher started on
// any host has one: CP_POOL_LIFELINE is set. A thread of the lifeline sends a beat every second and reads the driver's
// messages. It takes no lock of the Python interpreter and does not wait for the rank's work. It ends the process with
// kExitWithoutDriver when the driver is gone: when the connection ends, or when the driver has been silent for 5 s.
// Times are those of the monotonic clock, so that clocks of hosts may differ.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "worker/protocol/environment.h"
#include "worker/protocol/lifeline_messages.h"

namespace cp_pool {

class Lifeline {
 public:
  // Connects to the driver and makes file descriptor 2 a connection to it; also file descriptor 1, if it is the same
  // file as 2. Returns nullptr if CP_POOL_LIFELINE is not set. A process has one lifeline until it ends: further calls
  // return it. Ends the process with kExitWithoutDriver if the driver cannot be reached. Throws
  // protocol::EnvironmentError.
  static Lifeline* start(const protocol::RankEnvironment& environment);
  // Returns the lifeline of this process; nullptr if there is none.
  static Lifeline* current();

  void tell_rendezvous(const lifeline::Rendezvous& where);
  // Waits for rank 0's rendezvous as long as the driver lives.
  lifeline::Rendezvous await_rendezvous();
  // Tells the driver that the process is about to end. Returns when the message has been sent, or after half a second.
  void tell_ending(int exit_code);
  // Returns the address of this host on the connection to the driver.
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
  // Writes without waiting; returns whether all of `line` has been written.
  bool write_now(std::string_view line);
  void write_within(std::string_view line, std::chrono::milliseconds limit);
  [[noreturn]] void end_without_driver(std::string_view why) const;

  int rank_;
  int fd_;
  int launchers_stderr_;
  std::string host_;
  std::optional<timer_t> last_resort_;
  Clock::time_point last_heard_;
  std::string line_;  // beginning of a line from the driver that is not complete yet

  std::mutex write_mutex_;
  std::string unwritten_;  // rest of a line that is partly written

  std::mutex mutex_;
  std::condition_variable told_;
  std::optional<lifeline::Rendezvous> rendezvous_;
};

// Calls Lifeline::tell_ending if there is a lifeline.
void tell_ending(int exit_code);

}  // namespace cp_pool
