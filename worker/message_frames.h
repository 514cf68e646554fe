// The frames sent between a rank and rank 0's router of messages (message_router.h).
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

namespace cp_pool {

using Bytes = std::vector<std::uint8_t>;

// A queue of messages for one thread of a rank.
struct Box {
  enum class Of : std::uint8_t { compute, control };
  Of of = Of::compute;
  int rank = 0;

  friend auto operator<=>(const Box&, const Box&) = default;
};

// push: a message to rank 0, or one from a box. subscribe: the sender becomes the receiver of the box. token: the first
// frame of a rank, whose body is the token of its pool. Only `subscribe` uses the box.
enum class MessageKind : std::uint8_t { push, subscribe, token };
struct MessageFrame {
  MessageKind kind = MessageKind::push;
  Box box;
  Bytes body;
};

inline constexpr std::size_t kMessageHeaderBytes = 16;

Bytes encode_message(MessageKind kind, const Box& box, std::span<const std::uint8_t> body = {});

// Thrown if the other end of a connection is not a rank of this pool.
class MessageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Splits a stream of bytes into frames; not for the first frame of a rank.
class MessageReader {
 public:
  void feed(std::span<const std::uint8_t> bytes);
  std::optional<MessageFrame> next();  // nullopt if no frame is complete; throws MessageError

 private:
  Bytes bytes_;
  std::size_t taken_ = 0;  // how many bytes of bytes_ have been returned in frames
};

}  // namespace cp_pool
