// Changes a split over tokens into a split over heads inside a group of ranks, and back. In a scatter each rank sends
// all heads of its tokens and receives all tokens of the group for its block of heads; a gather is the reverse. Several
// tensors are exchanged together. Where ranks have windows, each rank puts its rectangles into the others' tensors.
// Otherwise one launch packs them, one message goes to each rank, and one launch unpacks them.
#pragma once

#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/comm/communicator.h"
#include "cp_core/comm/windows.h"
#include "cp_core/context_parallel/core.h"
#include "cp_core/partition.h"
#include "cp_core/thd/copy_rows.h"

namespace cp_pool {

// The order of the group's tokens on each side of the exchange, and the ranks' shares of the heads.
struct GroupRows {
  // The copies from the rows of the group's ranks, rank by rank, to the group's packed order.
  std::vector<RowCopy> copies;
  std::int64_t of_a_rank = 0;  // rows of each rank
  // The first head of each rank's block, then the number of all heads. Blocks may differ in size or be empty.
  std::vector<std::int64_t> heads;

  [[nodiscard]] std::int64_t heads_of(int rank) const {
    return heads.at(static_cast<std::size_t>(rank) + 1) - heads.at(static_cast<std::size_t>(rank));
  }
};

class HeadExchange {
 public:
  // A tensor on both sides of the exchange, contiguous on each: of_tokens [local tokens, all heads, dim] and of_heads
  // [tokens of the ranks' group, heads of the head group, dim]. If by_head, the shapes are [all heads, local tokens]
  // and [heads of the head group, tokens of the ranks' group].
  struct Item {
    at::Tensor of_tokens;
    at::Tensor of_heads;
    const GroupRows* rows = nullptr;
    bool by_head = false;
  };

  // An exchange in progress. The targets are complete after finish(). The current stream must be the same as at the
  // start.
  class Trip {
   public:
    // One message to each other rank and one from it, and the copies that unpack the received ones.
    struct Messages {
      std::vector<Communicator::Message> sent;
      std::vector<Communicator::Message> received;
      std::vector<BlockCopy> unpacking;
    };
    Trip(std::vector<Item> items, Communicator::WorkPtr work, Messages messages = {})
        : items_(std::move(items)), messages_(std::move(messages)), work_(std::move(work)) {}
    void finish();
    [[nodiscard]] const at::Tensor& of_heads(std::size_t item) const { return items_[item].of_heads; }

   private:
    std::vector<Item> items_;  // items and messages are kept until the operation has ended
    Messages messages_;        // empty where ranks have windows
    Communicator::WorkPtr work_;
  };

  // heads: the group of each rank's block of heads that is exchanged. Every block must be divisible by the number of
  // groups.
  HeadExchange(Communicator& group, HeadGroup heads) : group_(group), heads_(heads) {}

  // Allocates `of_heads` of each item, and fills it from `of_tokens`.
  [[nodiscard]] Trip scatter(std::vector<Item> items, std::string_view what) const;
  // Fills in `of_tokens` the heads of each rank's group of heads, from the ranks' `of_heads`.
  [[nodiscard]] Trip gather(std::vector<Item> items, std::string_view what) const;

 private:
  enum class Direction { scatter, gather };
  [[nodiscard]] Trip start(std::vector<Item> items, Direction direction, std::string_view what) const;
  [[nodiscard]] Trip start_messages(std::vector<Item> items, Direction direction, std::string_view what) const;
  [[nodiscard]] Trip start_puts(PeerWindows& through, std::vector<Item> items, Direction direction,
                                std::string_view what) const;

  Communicator& group_;
  HeadGroup heads_;
};

}  // namespace cp_pool
