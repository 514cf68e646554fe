// The frames sent between a rank and rank 0's hub of messages (mail_hub.h).
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

// A queue of messages for one receiver.
struct Box {
  enum class Of : std::uint8_t { compute, watcher, rank0 };
  Of of = Of::rank0;
  int rank = 0;  // 0 for Of::rank0

  friend auto operator<=>(const Box&, const Box&) = default;
};

// push: a message sent to a box, or delivered from it. subscribe: the sender becomes the receiver of the box. hello:
// the first frame of a rank, whose body is the token of its pool.
enum class MailKind : std::uint8_t { push, subscribe, hello };
struct MailFrame {
  MailKind kind = MailKind::push;
  Box box;
  Bytes body;
};

inline constexpr std::size_t kMailHeaderBytes = 16;

Bytes encode_mail(MailKind kind, const Box& box, std::span<const std::uint8_t> body = {});

// Thrown if the other end of a connection is not a rank of this pool.
class MailError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Splits a stream of bytes into frames; not for the first frame of a rank.
class MailReader {
 public:
  void feed(std::span<const std::uint8_t> bytes);
  std::optional<MailFrame> next();  // nullopt if no frame is complete; throws MailError

 private:
  Bytes bytes_;
  std::size_t taken_ = 0;  // how many bytes of bytes_ have been returned in frames
};

}  // namespace cp_pool
