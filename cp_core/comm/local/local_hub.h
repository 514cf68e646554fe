// The mailbox of one group of LocalCommunicators. Messages wait in it until their receiver takes them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "cp_core/comm/communicator.h"
#include "cp_core/comm/peer/windows.h"

namespace cp_pool {

// This thread's current stream of the device.
c10::Stream current_stream(const at::Device& device);

// Marks the end of all work that a GPU's current stream has so far. Does nothing on a CPU.
class StreamMark {
 public:
  explicit StreamMark(const at::Device& device);
  [[nodiscard]] bool reached() const { return !event_ || event_->query(); }
  // Makes the calling thread's current stream wait for the mark.
  void order_current_stream() const;

 private:
  std::optional<c10::Event> event_;
};

// Lets only one of the threads that share a mutex work at a time. A thread that waits in a hub lets others work.
class LocalTurn {
 public:
  // This thread takes part until destruction, or not at all if mutex is null.
  explicit LocalTurn(std::mutex* mutex);
  LocalTurn(const LocalTurn&) = delete;
  LocalTurn& operator=(const LocalTurn&) = delete;
  ~LocalTurn();
  // Lets other threads work until the Rest is destroyed.
  class Rest {
   public:
    Rest();
    Rest(const Rest&) = delete;
    Rest& operator=(const Rest&) = delete;
    ~Rest();
  };
};

class LocalHub {
 public:
  using Clock = Communicator::Clock;

  enum class Operation { exchange, all_gather, reduce_scatter, all_reduce, put_all, barrier };
  static std::string_view name_of(Operation operation);

  struct Address {
    bool barrier = false;  // barriers have numbers of their own, since they compare those of the other operations
    std::int64_t number = 0;
    int from = 0;
    int to = 0;
    auto operator<=>(const Address&) const = default;
  };
  struct Message {
    Operation operation = Operation::exchange;
    at::Tensor data;                     // a copy that belongs to the message
    StreamMark written;                  // on the sender's stream, after the copy
    std::vector<PeerWindows::Put> puts;  // for put_all: the places to write data to, which has one put after the other
  };

  void post(const Address& address, Message message);
  // Waits for a message and returns it, or nullopt if it is not there at the deadline. Throws CommError when aborted.
  std::optional<Message> take(const Address& address, Clock::time_point deadline);
  void abort();
  void check_not_aborted();

 private:
  void throw_if_aborted() const;

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<Address, Message> messages_;
  bool aborted_ = false;
};

}  // namespace cp_pool
