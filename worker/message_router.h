// Rank 0's end of the connections of all ranks. A thread of the router receives messages into boxes and sends the
// messages of a box to its receiver. A message costs one write and one read, and a waiting rank is woken once.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "worker/message_frames.h"

namespace cp_pool {

class MessageRouter {
 public:
  // listening: a listening, non-blocking socket, which the router takes over. A connection has to begin with the
  // token (message_frames.h). Until it has, nothing else of it is read; one that sends anything else, or
  // no token within `patience`, is closed. The first such connection is named on stderr. Throws std::system_error.
  MessageRouter(int listening, const std::string& token, std::chrono::milliseconds patience = std::chrono::seconds(10));
  ~MessageRouter();  // closes all connections

  [[nodiscard]] int port() const;

  // Puts a message into a box. May be called from any thread, and never waits for the receiver.
  void push(const Box& box, std::span<const std::uint8_t> message);
  // Calls `take` on the router's thread for each message to rank 0. A null `take` stops this and returns when no call
  // is running.
  void on_rank0(std::function<void(const Bytes&)> take);

 private:
  class Router;
  std::unique_ptr<Router> router_;
};

}  // namespace cp_pool
