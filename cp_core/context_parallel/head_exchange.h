// Changes a split over tokens into a split over heads inside a group of ranks, and back. In a scatter each rank gives
// all heads of its tokens and gets all tokens of the group for its block of heads; a gather is the reverse. Several
// tensors make one trip. Where ranks have windows, each rank puts its rectangles into the others' tensors. Otherwise
// one launch packs them, one message goes to each rank, and one launch unpacks them.
#pragma once

#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/comm/communicator.h"
#include "cp_core/comm/peer/windows.h"
#include "cp_core/context_parallel/head_group.h"
#include "cp_core/partition.h"
#include "cp_core/thd/copy_blocks.h"

namespace cp_pool {

// In which order the group's tokens lie on each side of the exchange.
struct GroupRows {
  // The copies from the rows of the group's ranks, rank by rank, to the group's packed order.
  std::vector<RowCopy> copies;
  std::int64_t of_a_rank = 0;
};

class HeadExchange {
 public:
  // A tensor on both sides of the exchange. Contiguous [local tokens, heads, dim] and [tokens of the group, heads of
  // the group, dim], or, by head, [heads, local tokens] and [heads of the group, tokens of the group].
  struct Item {
    at::Tensor of_tokens;
    at::Tensor of_heads;
    const GroupRows* rows = nullptr;
    bool by_head = false;
  };

  using Meanwhile = PeerWindows::Meanwhile;

  // Tensors on their way; the targets are complete after finish(). Current streams must be the same at both ends.
  class Trip {
   public:
    // One message to each rank and one from it.
    struct Messages {
      at::Tensor sent;
      at::Tensor received;
      std::vector<BlockCopy> unpacking;
    };
    Trip(std::vector<Item> items, Communicator::WorkPtr work, Messages messages = {})
        : items_(std::move(items)), messages_(std::move(messages)), work_(std::move(work)) {}
    void finish();

   private:
    std::vector<Item> items_;  // kept, as the messages are, until the operation has ended
    Messages messages_;        // none where ranks have windows
    Communicator::WorkPtr work_;
  };

  // heads: which group of each rank's block of heads travels. The number of heads must be divisible by the number of
  // ranks times the number of groups.
  HeadExchange(Communicator& group, HeadGroup heads) : group_(group), heads_(heads) {}

  // Allocates `of_heads` of each item.
  void make_targets(std::vector<Item>& items) const;
  // Fills `of_heads` from `of_tokens`.
  [[nodiscard]] Trip scatter(std::vector<Item> items, std::string_view what, Meanwhile meanwhile) const;
  // Fills in `of_tokens` the columns of each rank's group of heads, from `of_heads`.
  [[nodiscard]] Trip gather(std::vector<Item> items, std::string_view what, Meanwhile meanwhile) const;

 private:
  enum class Direction { scatter, gather };
  [[nodiscard]] Trip start(std::vector<Item> items, Direction direction, std::string_view what,
                           Meanwhile meanwhile) const;
  [[nodiscard]] Trip start_messages(std::vector<Item> items, Direction direction, std::string_view what) const;
  [[nodiscard]] Trip start_puts(PeerWindows& through, std::vector<Item> items, Direction direction,
                                std::string_view what, Meanwhile meanwhile) const;

  Communicator& group_;
  HeadGroup heads_;
};

}  // namespace cp_pool
