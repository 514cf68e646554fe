// Reads requests from the driver on a thread of its own, so that they arrive during a case.
#pragma once

#include <functional>
#include <thread>

#include "worker/protocol/line_framer.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

class RequestReader {
 public:
  struct Handlers {  // called on the reading thread
    std::function<void(const protocol::Request&)> request;
    std::function<void(const protocol::ProtocolError&)> bad_request;
    std::function<void()> end_of_input;  // also when reading fails
  };
  RequestReader(int fd, Handlers handlers);  // fd is not owned
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;
  ~RequestReader();  // stops reading

 private:
  void serve();
  void handle(const protocol::Line& line);

  int fd_;
  int wake_fd_;
  Handlers handlers_;
  std::jthread thread_;
};

}  // namespace cp_pool
