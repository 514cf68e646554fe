// Writes responses to the driver.
#pragma once

#include <functional>

#include "worker/protocol/messages.h"

namespace cp_pool {

class ResponseWriter {
 public:
  explicit ResponseWriter(int fd) : fd_(fd) {}  // not owned
  // Writes the whole response, in as many writes as the pipe needs. A driver that is gone is no error: the end of stdin
  // follows. A result longer than the protocol allows is written without its checks, and says so. half_way: called when
  // half of the response is written.
  void write(const protocol::Event& event, const std::function<void()>& half_way = {}) const;

 private:
  int fd_;
};

}  // namespace cp_pool
