// Whoever runs cp-pool may ask at any time what runs: by SIGUSR1, or by the key t on its terminal.
#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <termios.h>

#include "driver/clock.h"
#include "driver/events.h"
#include "driver/reporters/running_now.h"

namespace cp_pool {

// A listener. It looks for requests when the run's clock ticks, has the ranks of running cases asked where they stand,
// and answers when these have answered, or after a while without. One at a time.
class StatusRequests : public EventSink {
 public:
  // show is called for each line of an answer. keys: stdin is for nothing else, so that a key may be read from it if it
  // is the terminal of this process group.
  StatusRequests(std::function<void(const std::string& line)> show, bool keys);
  StatusRequests(const StatusRequests&) = delete;
  StatusRequests& operator=(const StatusRequests&) = delete;
  ~StatusRequests() override;  // leaves the signal and the terminal as they were

  void on_event(const Event& event) override;
  void on_tick() override;

  // RunConfig::status_requests. Who never calls it asks no ranks, and is not waited for.
  std::uint64_t take_requests();

 private:
  [[nodiscard]] bool has_terminal() const;
  void take_keys();
  void give_terminal_back();
  void answer();

  std::function<void(const std::string& line)> show_;
  bool keys_;
  RunningNow running_;
  std::uint64_t requests_ = 0;
  bool open_ = false;      // a request is not answered
  bool taken_up_ = false;  // and the ranks are asked
  Clock::time_point limit_;
  struct sigaction before_{};
  bool taken_ = false;  // the terminal hands over keys, and does not show them
  termios terminal_{};  // as it was
};

}  // namespace cp_pool
