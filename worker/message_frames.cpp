#include "worker/message_frames.h"

#include <cstring>

namespace cp_pool {

namespace {

// Numbers are in this machine's byte order, because all ranks run the same binary. `magic` identifies a rank of
// cp-pool.
struct MailHeader {
  std::uint32_t magic = 0;
  std::uint32_t size = 0;  // of the body, in bytes
  std::int32_t rank = 0;
  std::uint8_t kind = 0;
  std::uint8_t of = 0;
  std::uint16_t unused = 0;
};
static_assert(sizeof(MailHeader) == kMessageHeaderBytes);

constexpr std::uint32_t kMailMagic = 0x43504d32;
constexpr std::uint32_t kLargestBody = std::uint32_t{256} << 20U;

}  // namespace

Bytes encode_message(MessageKind kind, const Box& box, std::span<const std::uint8_t> body) {
  if (body.size() > kLargestBody) throw MessageError("a message between ranks is larger than 256 MiB");
  const MailHeader header{.magic = kMailMagic,
                          .size = static_cast<std::uint32_t>(body.size()),
                          .rank = box.rank,
                          .kind = static_cast<std::uint8_t>(kind),
                          .of = static_cast<std::uint8_t>(box.of)};
  Bytes out(sizeof header + body.size());
  std::memcpy(out.data(), &header, sizeof header);
  if (!body.empty()) std::memcpy(out.data() + sizeof header, body.data(), body.size());
  return out;
}

void MessageReader::feed(std::span<const std::uint8_t> bytes) {
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(taken_));
  taken_ = 0;
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

std::optional<MessageFrame> MessageReader::next() {
  const std::size_t left = bytes_.size() - taken_;
  MailHeader header;
  if (left < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes_.data() + taken_, sizeof header);
  const bool known = header.kind <= static_cast<std::uint8_t>(MessageKind::subscribe) &&
                     header.of <= static_cast<std::uint8_t>(Box::Of::control);
  if (header.magic != kMailMagic || header.size > kLargestBody || !known) throw MessageError("not a rank's message");
  if (left < sizeof header + header.size) return std::nullopt;
  const auto body = bytes_.begin() + static_cast<std::ptrdiff_t>(taken_ + sizeof header);
  taken_ += sizeof header + header.size;
  return MessageFrame{.kind = static_cast<MessageKind>(header.kind),
                      .box = {static_cast<Box::Of>(header.of), header.rank},
                      .body = Bytes(body, body + header.size)};
}

}  // namespace cp_pool
