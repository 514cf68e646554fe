// Rank 0's end of the connections of all ranks: a thread of its own that takes what they send and hands on what waits
// in a box to its receiver. One message costs one write and one read, and a rank that waits is woken once.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "worker/mail_frames.h"

namespace cp_pool {

class MailHub {
 public:
  // Listens on a port that the kernel chooses: at the address of the socket `like`, or at any if that is -1. Throws
  // std::system_error.
  explicit MailHub(int like = -1);
  MailHub(const MailHub&) = delete;
  MailHub& operator=(const MailHub&) = delete;
  ~MailHub();  // closes all connections

  [[nodiscard]] int port() const;

  // From any thread. Does not wait for the receiver, whatever it does.
  void push(const Box& box, std::span<const std::uint8_t> message);
  // Calls it for each message of a box, on the hub's thread; null ends that, and returns when no call is under way.
  void on_rank0(std::function<void(const Bytes&)> take);

 private:
  class Hub;
  std::unique_ptr<Hub> hub_;
};

}  // namespace cp_pool
