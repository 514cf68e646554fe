// Writes responses to the driver.
#pragma once

#include <functional>

#include "worker/protocol/messages.h"

namespace cp_pool {

class ResponseWriter {
 public:
  explicit ResponseWriter(int fd) : fd_(fd) {}  // not owned
  // Whole, whatever the pipe takes at a time. A driver that is gone is not an error here: its end of stdin follows. A
  // result that is longer than a line may be loses its checks, and says so.
  // `half_way`, if there is one, is called when half of it is written.
  void write(const protocol::Event& event, const std::function<void()>& half_way = {}) const;

 private:
  int fd_;
};

}  // namespace cp_pool
