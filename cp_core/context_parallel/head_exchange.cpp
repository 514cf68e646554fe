#include "cp_core/context_parallel/head_exchange.h"

#include <cstddef>
#include <utility>

#include <ATen/ops/empty.h>

#include "cp_core/cuda/cuda_part.h"
#include "cp_core/mutation.h"

namespace cp_pool {
namespace {

using Item = HeadExchange::Item;

// A rectangle of memory, in bytes.
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

// Where an item lies: whole on the side of tokens, whole on the side of heads, and in the parts of a message, [local
// tokens, heads of a group, dim] or, by head, [heads of a group, local tokens]. All in bytes.
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

  // The heads of `rank` of all local tokens, and a message.
  void tokens_and_message(int rank, std::byte* message, std::vector<BlockCopy>& copies, bool to_message) const {
    const Place in_message{.first = message, .stride = group_heads_ * head_bytes_};
    const Place here = of_tokens(rank, 0);
    if (item_.by_head) {
      append(copies, here, in_message, 1, message_bytes(), to_message);
    } else {
      append(copies, here, in_message, tokens_, group_heads_ * head_bytes_, to_message);
    }
  }

  // The tokens of `rank` of this rank's heads, and a message.
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

  // What `rank`, this one, keeps: its heads of its tokens. block: which heads it takes for its own.
  void tokens_and_heads(int rank, int block, std::vector<BlockCopy>& copies, bool to_heads) const {
    for (const auto& [row, target, count] : rows_of(rank)) {
      const std::int64_t rows = item_.by_head ? group_heads_ : count;
      const std::int64_t width = (item_.by_head ? count : group_heads_) * head_bytes_;
      append(copies, of_tokens(block, row), of_heads(target), rows, width, to_heads);
    }
  }

 private:
  // From token `row` and the rank's first head of the group on.
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

  // From a row of the rank to a row of the group.
  [[nodiscard]] std::vector<RowCopy> rows_of(int rank) const {
    return copies_of_rank(item_.rows->copies, rank, tokens_);
  }

  static void append(std::vector<BlockCopy>& copies, const Place& here, const Place& there, std::int64_t rows,
                     std::int64_t width, bool forth) {
    copies.push_back(forth ? copy_of(here, there, rows, width) : copy_of(there, here, rows, width));
  }

  const Item& item_;
  std::int64_t head_bytes_;  // of a token and head
  std::int64_t heads_;
  std::int64_t rank_heads_;
  std::int64_t group_heads_;
  std::int64_t first_head_;  // of the group, in a rank's block
  std::int64_t tokens_;
};

}  // namespace

void HeadExchange::Trip::finish() {
  if (CP_MUTATE(a2a_wait_skipped, true, false)) work_->wait();
  copy_blocks(unpacking_, received_.device());
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
  const int ranks = group_.size();
  const int own = group_.rank();
  const bool scatters = direction == Direction::scatter;
  std::int64_t part_bytes = 0;
  for (const Item& item : items) part_bytes += Geometry(item, ranks, heads_).message_bytes();
  const auto options = items.front().of_tokens.options().dtype(at::kByte);
  at::Tensor sent = at::empty({ranks * part_bytes}, options);
  at::Tensor received = at::empty({ranks * part_bytes}, options);
#ifdef CP_POOL_MUTANTS
  // Memory used before may hold the very numbers that a skipped wait leaves out.
  received.zero_();
#endif
  std::vector<BlockCopy> packing;
  std::vector<BlockCopy> unpacking;
  std::int64_t offset = 0;
  for (const Item& item : items) {
    const Geometry geometry(item, ranks, heads_);
    const auto part = [&](const at::Tensor& message, int rank) {
      return static_cast<std::byte*>(message.data_ptr()) + rank * part_bytes + offset;
    };
    for (int rank = 0; rank < ranks; ++rank) {
      const int block = scatters ? CP_MUTATE(a2a_head_order, rank, ranks - 1 - rank) : rank;
      if (rank == own) {
        geometry.tokens_and_heads(rank, block, packing, scatters);
      } else if (scatters) {
        geometry.tokens_and_message(block, part(sent, rank), packing, /*to_message=*/true);
        geometry.heads_and_message(rank, part(received, rank), unpacking, /*to_message=*/false);
      } else {
        geometry.heads_and_message(rank, part(sent, rank), packing, /*to_message=*/true);
        geometry.tokens_and_message(rank, part(received, rank), unpacking, /*to_message=*/false);
      }
    }
    offset += geometry.message_bytes();
  }
  delay_point(sent.device());
  copy_blocks(packing, sent.device());
  Communicator::WorkPtr work = group_.trade(received, sent, what);
  return {std::move(sent), std::move(received), std::move(work), std::move(items), std::move(unpacking)};
}

}  // namespace cp_pool
