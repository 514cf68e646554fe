// What travels on the connections between a rank and rank 0's hub of messages (mail_hub.h).
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

// Where messages wait for their one receiver.
struct Box {
  enum class Of : std::uint8_t { compute, watcher, rank0 };
  Of of = Of::rank0;
  int rank = 0;  // 0 for Of::rank0

  friend auto operator<=>(const Box&, const Box&) = default;
};

// push: a message for a box, or out of it. subscribe: the sender is the receiver of that box.
enum class MailKind : std::uint8_t { push, subscribe };
struct MailFrame {
  MailKind kind = MailKind::push;
  Box box;
  Bytes body;
};

Bytes encode_mail(MailKind kind, const Box& box, std::span<const std::uint8_t> body = {});

// Something else than a rank of this pool is at the other end.
class MailError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Cuts a stream of bytes into frames.
class MailReader {
 public:
  void feed(std::span<const std::uint8_t> bytes);
  std::optional<MailFrame> next();  // throws MailError; nullopt: not whole yet

 private:
  Bytes bytes_;
  std::size_t taken_ = 0;  // of bytes_
};

}  // namespace cp_pool
