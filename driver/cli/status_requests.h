// Answers requests for the status of a run, which SIGUSR1 or the key t on the terminal make at any time.
#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <termios.h>

#include "driver/core/clock.h"
#include "driver/core/events.h"
#include "driver/report/running_now.h"

namespace cp_pool {

// A listener that looks for requests at every tick of the run's clock. It has the running cases' ranks asked for their
// position, and answers when they have replied or after kPatience. Requests are answered one at a time.
class StatusRequests : public EventSink {
 public:
  // `show` is called for each line of an answer. `keys` says that stdin has no other use, so that keys may be read from
  // it if it is the terminal of this process group.
  StatusRequests(std::function<void(const std::string& line)> show, bool keys);
  StatusRequests(const StatusRequests&) = delete;
  StatusRequests& operator=(const StatusRequests&) = delete;
  ~StatusRequests() override;  // restores the signal action and the terminal

  void on_event(const Event& event) override;
  void on_tick() override;

  // The function for RunConfig::status_requests. If it is never called, no ranks are asked, and answers do not wait for
  // them.
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
  bool open_ = false;      // a request is waiting for its answer
  bool taken_up_ = false;  // the ranks have been asked for it
  Clock::time_point limit_;
  struct sigaction before_{};
  bool taken_ = false;  // the terminal passes keys on without echo
  termios terminal_{};  // the settings to restore
};

}  // namespace cp_pool
