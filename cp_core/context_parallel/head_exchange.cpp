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
  Geometry(const Item& item, HeadGroup groups)
      : item_(item),
        head_bytes_(static_cast<std::int64_t>(item.of_tokens.element_size()) *
                    (item.by_head ? 1 : item.of_tokens.size(2))),
        heads_(item.of_tokens.size(item.by_head ? 0 : 1)),
        groups_(groups),
        tokens_(item.rows->of_a_rank) {}

  // The bytes of one rank's tokens with the heads of `block`.
  [[nodiscard]] std::int64_t message_bytes(int block) const { return tokens_ * group_heads(block) * head_bytes_; }

  // Appends the copies between this rank's tokens, with the heads of `block`, and a message.
  void tokens_and_message(int block, std::byte* message, std::vector<BlockCopy>& copies, bool to_message) const {
    const std::int64_t width = group_heads(block) * head_bytes_;
    const Place in_message{.first = message, .stride = width};
    const Place here = of_tokens(block, 0);
    if (item_.by_head) {
      append(copies, here, in_message, 1, message_bytes(block), to_message);
    } else {
      append(copies, here, in_message, tokens_, width, to_message);
    }
  }

  // Appends the copies between the tokens of `rank`, with this rank's heads, which are those of `block`, and a message.
  void heads_and_message(int rank, int block, std::byte* message, std::vector<BlockCopy>& copies,
                         bool to_message) const {
    const std::int64_t heads = group_heads(block);
    for (const auto& [row, target, count] : rows_of(rank)) {
      if (item_.by_head) {
        const Place in_message{.first = message + row * head_bytes_, .stride = tokens_ * head_bytes_};
        append(copies, of_heads(target, block), in_message, heads, count * head_bytes_, to_message);
      } else {
        const Place in_message{.first = message + row * heads * head_bytes_, .stride = 0};
        append(copies, of_heads(target, block), in_message, 1, count * heads * head_bytes_, to_message);
      }
    }
  }

  // Appends the copies between this rank's two tensors of the tokens of `rank` with the heads of `block`. If both are
  // this rank, that is the part which the rank keeps. A put to another rank uses only the target's offset and stride,
  // which are those in that rank's tensor.
  void tokens_and_heads(int rank, int block, std::vector<BlockCopy>& copies, bool to_heads) const {
    const std::int64_t heads = group_heads(block);
    for (const auto& [row, target, count] : rows_of(rank)) {
      const std::int64_t rows = item_.by_head ? heads : count;
      const std::int64_t width = (item_.by_head ? count : heads) * head_bytes_;
      append(copies, of_tokens(block, row), of_heads(target, block), rows, width, to_heads);
    }
  }

#ifdef CP_POOL_MUTANTS
  // Zeroes the elements that this exchange will write, since reused memory may hold the right numbers, which would hide
  // a skipped wait. Exchanges of other groups of heads write other parts of the same of_tokens.
  void forget(bool of_heads) const {
    if (of_heads) {
      item_.of_heads.zero_();
    } else {
      for (int block = 0; std::cmp_less(block + 1, item_.rows->heads.size()); ++block) {
        item_.of_tokens.narrow(item_.by_head ? 0 : 1, first_head(block), group_heads(block)).zero_();
      }
    }
  }
#endif

 private:
  // The heads of the group in a rank's block.
  [[nodiscard]] std::int64_t group_heads(int block) const { return item_.rows->heads_of(block) / groups_.count; }
  [[nodiscard]] std::int64_t first_head(int block) const {
    return item_.rows->heads[static_cast<std::size_t>(block)] + groups_.index * group_heads(block);
  }

  // The place of token `row` and of the first head of the group in the block.
  [[nodiscard]] Place of_tokens(int block, std::int64_t row) const {
    auto* data = static_cast<std::byte*>(item_.of_tokens.data_ptr());
    const std::int64_t head = first_head(block);
    if (item_.by_head) {
      return {.first = data + (head * tokens_ + row) * head_bytes_, .stride = tokens_ * head_bytes_};
    }
    return {.first = data + (row * heads_ + head) * head_bytes_, .stride = heads_ * head_bytes_};
  }
  // The place of row `row` of the group, with the heads of `block`.
  [[nodiscard]] Place of_heads(std::int64_t row, int block) const {
    auto* data = static_cast<std::byte*>(item_.of_heads.data_ptr());
    if (item_.by_head) {
      return {.first = data + row * head_bytes_, .stride = item_.of_heads.size(1) * head_bytes_};
    }
    const std::int64_t width = group_heads(block) * head_bytes_;
    return {.first = data + row * width, .stride = width};
  }

  // The copies from the rows of `rank` to the rows of the group.
  [[nodiscard]] std::vector<RowCopy> rows_of(int rank) const {
    return copies_of_rank(item_.rows->copies, rank, tokens_);
  }

  static void append(std::vector<BlockCopy>& copies, const Place& here, const Place& there, std::int64_t rows,
                     std::int64_t width, bool forth) {
    if (rows == 0 || width == 0) return;  // no heads, or no rows
    copies.push_back(forth ? copy_of(here, there, rows, width) : copy_of(there, here, rows, width));
  }

  const Item& item_;
  std::int64_t head_bytes_;  // bytes of one head of one token
  std::int64_t heads_;
  HeadGroup groups_;
  std::int64_t tokens_;
};

// The index of the block of heads that a rank of the group gets.
int block_of(int rank, [[maybe_unused]] const GroupRows& rows) {
#ifdef CP_POOL_MUTANTS
  const int other = static_cast<int>(rows.heads.size()) - 2 - rank;
  if (mutant_is_on(Mutant::a2a_head_order) && rows.heads_of(other) == rows.heads_of(rank)) return other;
#endif
  return rank;
}

// Turns a copy that writes to this rank's `target` into a put to the same place of the peer's tensor.
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
  if (!messages_.unpacking.empty()) copy_blocks(messages_.unpacking, items_.front().of_tokens.device());
}

HeadExchange::Trip HeadExchange::scatter(std::vector<Item> items, std::string_view what) const {
  for (Item& item : items) {
    const std::int64_t tokens = item.rows->of_a_rank * group_.size();
    const std::int64_t heads = item.rows->heads_of(group_.rank()) / heads_.count;
    item.of_heads = item.by_head ? at::empty({heads, tokens}, item.of_tokens.options())
                                 : at::empty({tokens, heads, item.of_tokens.size(2)}, item.of_tokens.options());
    item.of_tokens = item.of_tokens.contiguous();
#ifdef CP_POOL_MUTANTS
    const int ranks = group_.size();
    const int dim = item.by_head ? 0 : 1;
    if (mutant_is_on(Mutant::a2a_heads_interleaved) && item.of_tokens.size(dim) % ranks == 0) {
      item.of_tokens = item.of_tokens.unflatten(dim, {item.of_tokens.size(dim) / ranks, ranks})
                           .transpose(dim, dim + 1)
                           .flatten(dim, dim + 1)
                           .contiguous();
    }
#endif
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
  const auto options = items.front().of_tokens.options().dtype(at::kByte);
  const auto add_message = [&](std::vector<Communicator::Message>& messages, int peer, int block) {
    std::int64_t bytes = 0;
    for (const Item& item : items) bytes += Geometry(item, heads_).message_bytes(block);
    messages.push_back({.tensor = at::empty({bytes}, options), .peer = peer});
    return static_cast<std::byte*>(messages.back().tensor.data_ptr());
  };
  std::vector<BlockCopy> packing;
  Trip::Messages messages;
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == own) {
      for (const Item& item : items) {
        const int block = scatters ? block_of(rank, *item.rows) : rank;
        Geometry(item, heads_).tokens_and_heads(rank, block, packing, scatters);
      }
      continue;
    }
    const int sent_block = scatters ? rank : own;
    const int received_block = scatters ? own : rank;
    std::byte* sent = add_message(messages.sent, rank, sent_block);
    std::byte* received = add_message(messages.received, rank, received_block);
#ifdef CP_POOL_MUTANTS
    // Reused memory may hold the right numbers from an earlier case, which would hide a skipped wait.
    messages.received.back().tensor.zero_();
#endif
    for (const Item& item : items) {
      const Geometry geometry(item, heads_);
      if (scatters) {
        geometry.tokens_and_message(block_of(rank, *item.rows), sent, packing, /*to_message=*/true);
        geometry.heads_and_message(rank, own, received, messages.unpacking, /*to_message=*/false);
      } else {
        geometry.heads_and_message(rank, own, sent, packing, /*to_message=*/true);
        geometry.tokens_and_message(rank, received, messages.unpacking, /*to_message=*/false);
      }
      sent += geometry.message_bytes(sent_block);
      received += geometry.message_bytes(received_block);
    }
  }
  delay_point(options.device());
  copy_blocks(packing, options.device());
  Communicator::WorkPtr work = group_.exchange_all(messages.sent, messages.received, what);
  return {std::move(items), std::move(work), std::move(messages)};
}

HeadExchange::Trip HeadExchange::start_puts(PeerWindows& through, std::vector<Item> items, Direction direction,
                                            std::string_view what) const {
  const bool scatters = direction == Direction::scatter;
  std::vector<at::Tensor> windows;
  std::vector<at::Tensor> sources;
  std::vector<PeerWindows::Put> puts;
  for (const Item& item : items) {
    const Geometry geometry(item, heads_);
    const at::Tensor& target = scatters ? item.of_heads : item.of_tokens;
    for (int rank = 0; rank < group_.size(); ++rank) {
      std::vector<BlockCopy> blocks;
      if (scatters) {
        geometry.tokens_and_heads(group_.rank(), block_of(rank, *item.rows), blocks, /*to_heads=*/true);
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
