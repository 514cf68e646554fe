#include "cp_core/context_parallel/head_exchange.h"

#include <cstddef>
#include <utility>

#include <ATen/ops/empty.h>

#include "cp_core/cuda/device.h"
#include "cp_core/mutation.h"

namespace cp_pool {
namespace {

using Item = HeadExchange::Item;

// The first byte of a rectangle of memory, and the bytes from one row to the next.
struct Place {
  std::byte* first = nullptr;
  std::int64_t stride = 0;
};

BlockCopy copy_of(const Place& source, const Place& target, std::int64_t rows, std::int64_t width) {
  return {.source = source.first,
          .target = target.first,
          .rows = rows,
          .width = width,
          .source_stride = source.stride,
          .target_stride = target.stride};
}

// The memory layout of an item, in bytes: its tensor on the side of tokens, its tensor on the side of heads, and its
// part of a message, which is [local tokens, heads of a group, dim] or, if by_head, [heads of a group, local tokens].
class Geometry {
 public:
  Geometry(const Item& item, int ranks, HeadGroup groups)
      : item_(item),
        head_bytes_(static_cast<std::int64_t>(item.of_tokens.element_size()) *
                    (item.by_head ? 1 : item.of_tokens.size(2))),
        heads_(item.of_tokens.size(item.by_head ? 0 : 1)),
        rank_heads_(heads_ / ranks),
        group_heads_(rank_heads_ / groups.count),
        first_head_(groups.index * group_heads_),
        tokens_(item.rows->of_a_rank) {}

  [[nodiscard]] std::int64_t message_bytes() const { return tokens_ * group_heads_ * head_bytes_; }

  // Appends the copies between this rank's tokens, with the heads of `rank`, and a message.
  void tokens_and_message(int rank, std::byte* message, std::vector<BlockCopy>& copies, bool to_message) const {
    const Place in_message{.first = message, .stride = group_heads_ * head_bytes_};
    const Place here = of_tokens(rank, 0);
    if (item_.by_head) {
      append(copies, here, in_message, 1, message_bytes(), to_message);
    } else {
      append(copies, here, in_message, tokens_, group_heads_ * head_bytes_, to_message);
    }
  }

  // Appends the copies between the tokens of `rank`, with this rank's heads, and a message.
  void heads_and_message(int rank, std::byte* message, std::vector<BlockCopy>& copies, bool to_message) const {
    for (const auto& [row, target, count] : rows_of(rank)) {
      if (item_.by_head) {
        const Place in_message{.first = message + row * head_bytes_, .stride = tokens_ * head_bytes_};
        append(copies, of_heads(target), in_message, group_heads_, count * head_bytes_, to_message);
      } else {
        const Place in_message{.first = message + row * group_heads_ * head_bytes_, .stride = 0};
        append(copies, of_heads(target), in_message, 1, count * group_heads_ * head_bytes_, to_message);
      }
    }
  }

  // Appends the copies between this rank's two tensors of the tokens of `rank` with the heads of rank `block`. If both
  // are this rank, that is the part which the rank keeps. A put to another rank uses only the target's offset, which is
  // the same in that rank's tensor.
  void tokens_and_heads(int rank, int block, std::vector<BlockCopy>& copies, bool to_heads) const {
    for (const auto& [row, target, count] : rows_of(rank)) {
      const std::int64_t rows = item_.by_head ? group_heads_ : count;
      const std::int64_t width = (item_.by_head ? count : group_heads_) * head_bytes_;
      append(copies, of_tokens(block, row), of_heads(target), rows, width, to_heads);
    }
  }

#ifdef CP_POOL_MUTANTS
  // Zeroes the elements that this exchange will write, since reused memory may hold the right numbers, which would hide
  // a skipped wait. Exchanges of other groups of heads write other parts of the same of_tokens.
  void forget(bool of_heads) const {
    if (of_heads) {
      item_.of_heads.zero_();
    } else {
      item_.of_tokens.unflatten(item_.by_head ? 0 : 1, {heads_ / rank_heads_, rank_heads_})
          .narrow(item_.by_head ? 1 : 2, first_head_, group_heads_)
          .zero_();
    }
  }
#endif

 private:
  // The place of token `row` and of the first head of the group in the block of `rank`.
  [[nodiscard]] Place of_tokens(int rank, std::int64_t row) const {
    auto* data = static_cast<std::byte*>(item_.of_tokens.data_ptr());
    const std::int64_t head = rank * rank_heads_ + first_head_;
    if (item_.by_head) {
      return {.first = data + (head * tokens_ + row) * head_bytes_, .stride = tokens_ * head_bytes_};
    }
    return {.first = data + (row * heads_ + head) * head_bytes_, .stride = heads_ * head_bytes_};
  }
  [[nodiscard]] Place of_heads(std::int64_t row) const {
    auto* data = static_cast<std::byte*>(item_.of_heads.data_ptr());
    if (item_.by_head) {
      return {.first = data + row * head_bytes_, .stride = item_.of_heads.size(1) * head_bytes_};
    }
    return {.first = data + row * group_heads_ * head_bytes_, .stride = group_heads_ * head_bytes_};
  }

  // The copies from the rows of `rank` to the rows of the group.
  [[nodiscard]] std::vector<RowCopy> rows_of(int rank) const {
    return copies_of_rank(item_.rows->copies, rank, tokens_);
  }

  static void append(std::vector<BlockCopy>& copies, const Place& here, const Place& there, std::int64_t rows,
                     std::int64_t width, bool forth) {
    copies.push_back(forth ? copy_of(here, there, rows, width) : copy_of(there, here, rows, width));
  }

  const Item& item_;
  std::int64_t head_bytes_;  // bytes of one head of one token
  std::int64_t heads_;
  std::int64_t rank_heads_;
  std::int64_t group_heads_;
  std::int64_t first_head_;  // the group's first head, counted in a rank's block
  std::int64_t tokens_;
};

// The index of the block of heads that a rank of the group gets.
int block_of(int rank, [[maybe_unused]] const Communicator& group) {
  return CP_MUTATE(a2a_head_order, rank, group.size() - 1 - rank);
}

// Turns a copy that writes to this rank's `target` into a put to the same place of the peer's tensor, which has the
// same sizes.
PeerWindows::Put put_into(const at::Tensor& target, const BlockCopy& block, int peer, std::size_t window) {
  const auto* begin = static_cast<const std::byte*>(target.const_data_ptr());
  PeerWindows::Put put{.peer = peer, .window = window, .block = block};
  put.first = static_cast<const std::byte*>(block.target) - begin;
  put.block.target = nullptr;
  return put;
}

}  // namespace

void HeadExchange::Trip::finish() {
  if (CP_MUTATE(a2a_wait_skipped, true, false)) work_->wait();
  if (messages_.received.defined()) copy_blocks(messages_.unpacking, messages_.received.device());
}

void HeadExchange::make_targets(std::vector<Item>& items) const {
  const std::int64_t ranks = group_.size();
  for (Item& item : items) {
    const std::int64_t tokens = item.rows->of_a_rank * ranks;
    const std::int64_t heads = item.of_tokens.size(item.by_head ? 0 : 1) / ranks / heads_.count;
    item.of_heads = item.by_head ? at::empty({heads, tokens}, item.of_tokens.options())
                                 : at::empty({tokens, heads, item.of_tokens.size(2)}, item.of_tokens.options());
  }
}

HeadExchange::Trip HeadExchange::scatter(std::vector<Item> items, std::string_view what) const {
  const std::int64_t ranks = group_.size();
  for (Item& item : items) {
    item.of_tokens = item.of_tokens.contiguous();
    if (CP_MUTATE(a2a_heads_interleaved, false, true)) {
      const int dim = item.by_head ? 0 : 1;
      item.of_tokens = item.of_tokens.unflatten(dim, {item.of_tokens.size(dim) / ranks, ranks})
                           .transpose(dim, dim + 1)
                           .flatten(dim, dim + 1)
                           .contiguous();
    }
  }
  return start(std::move(items), Direction::scatter, what);
}

HeadExchange::Trip HeadExchange::gather(std::vector<Item> items, std::string_view what) const {
  for (Item& item : items) item.of_heads = item.of_heads.contiguous();
  return start(std::move(items), Direction::gather, what);
}

HeadExchange::Trip HeadExchange::start(std::vector<Item> items, Direction direction, std::string_view what) const {
  PeerWindows* windows = group_.windows();
  return windows != nullptr ? start_puts(*windows, std::move(items), direction, what)
                            : start_messages(std::move(items), direction, what);
}

HeadExchange::Trip HeadExchange::start_messages(std::vector<Item> items, Direction direction,
                                                std::string_view what) const {
  const int ranks = group_.size();
  const int own = group_.rank();
  const bool scatters = direction == Direction::scatter;
  std::int64_t part_bytes = 0;
  for (const Item& item : items) part_bytes += Geometry(item, ranks, heads_).message_bytes();
  const auto options = items.front().of_tokens.options().dtype(at::kByte);
  Trip::Messages messages{.sent = at::empty({ranks * part_bytes}, options),
                          .received = at::empty({ranks * part_bytes}, options),
                          .unpacking = {}};
#ifdef CP_POOL_MUTANTS
  // Reused memory may hold the right numbers from an earlier case, which would hide a skipped wait.
  messages.received.zero_();
#endif
  std::vector<BlockCopy> packing;
  std::int64_t offset = 0;
  for (const Item& item : items) {
    const Geometry geometry(item, ranks, heads_);
    const auto part = [&](const at::Tensor& message, int rank) {
      return static_cast<std::byte*>(message.data_ptr()) + rank * part_bytes + offset;
    };
    for (int rank = 0; rank < ranks; ++rank) {
      const int block = scatters ? block_of(rank, group_) : rank;
      if (rank == own) {
        geometry.tokens_and_heads(rank, block, packing, scatters);
      } else if (scatters) {
        geometry.tokens_and_message(block, part(messages.sent, rank), packing, /*to_message=*/true);
        geometry.heads_and_message(rank, part(messages.received, rank), messages.unpacking, /*to_message=*/false);
      } else {
        geometry.heads_and_message(rank, part(messages.sent, rank), packing, /*to_message=*/true);
        geometry.tokens_and_message(rank, part(messages.received, rank), messages.unpacking, /*to_message=*/false);
      }
    }
    offset += geometry.message_bytes();
  }
  delay_point(messages.sent.device());
  copy_blocks(packing, messages.sent.device());
  Communicator::WorkPtr work = group_.all_to_all(messages.received, messages.sent, what);
  return {std::move(items), std::move(work), std::move(messages)};
}

HeadExchange::Trip HeadExchange::start_puts(PeerWindows& through, std::vector<Item> items, Direction direction,
                                            std::string_view what) const {
  const int ranks = group_.size();
  const bool scatters = direction == Direction::scatter;
  std::vector<at::Tensor> windows;
  std::vector<at::Tensor> sources;
  std::vector<PeerWindows::Put> puts;
  for (const Item& item : items) {
    const Geometry geometry(item, ranks, heads_);
    const at::Tensor& target = scatters ? item.of_heads : item.of_tokens;
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<BlockCopy> blocks;
      if (scatters) {
        geometry.tokens_and_heads(group_.rank(), block_of(rank, group_), blocks, /*to_heads=*/true);
      } else {
        geometry.tokens_and_heads(rank, group_.rank(), blocks, /*to_heads=*/false);
      }
      for (const BlockCopy& block : blocks) puts.push_back(put_into(target, block, rank, windows.size()));
    }
#ifdef CP_POOL_MUTANTS
    geometry.forget(/*of_heads=*/scatters);
#endif
    windows.push_back(target);
    sources.push_back(scatters ? item.of_tokens : item.of_heads);
  }
  delay_point(sources.front().device());
  Communicator::WorkPtr work = through.put_all(windows, sources, puts, what);
  return {std::move(items), std::move(work)};
}

}  // namespace cp_pool
