// Trades the split over tokens for a split over heads inside a group of ranks, and back: each rank gives the tokens it
// holds of all heads, and gets the tokens of the whole group of its block of heads, or the reverse. Several tensors
// make one trip: where ranks have windows each puts its rectangles into everybody's tensors; else one launch packs
// them, one message goes to each rank, one launch unpacks them.
#pragma once

#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/comm/communicator.h"
#include "cp_core/context_parallel/head_group.h"
#include "cp_core/partition.h"
#include "cp_core/thd/copy_blocks.h"

namespace cp_pool {

// Where the group's tokens lie.
struct GroupRows {
  // From the rows of the group's ranks, rank by rank, to the group's packed order.
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

  using Meanwhile = Communicator::Meanwhile;

  // Tensors on their way; the targets are complete after finish(). Current streams must be the same at both ends.
  class Trip {
   public:
    // A message to and from each rank, to be unpacked.
    struct Messages {
      at::Tensor sent;
      at::Tensor received;
      std::vector<BlockCopy> unpacking;
    };
    Trip(std::vector<Item> items, Communicator::WorkPtr work, Messages messages = {})
        : items_(std::move(items)), messages_(std::move(messages)), work_(std::move(work)) {}
    void finish();

   private:
    std::vector<Item> items_;  // as the messages, they must live as long as the operation
    Messages messages_;        // none where ranks have windows
    Communicator::WorkPtr work_;
  };

  // Of each rank's block of heads this group travels. Heads must divide by the ranks and the number of groups.
  HeadExchange(Communicator& group, HeadGroup heads) : group_(group), heads_(heads) {}

  // Allocates of_heads.
  void make_targets(std::vector<Item>& items) const;
  // of_tokens -> of_heads.
  [[nodiscard]] Trip scatter(std::vector<Item> items, std::string_view what, Meanwhile meanwhile) const;
  // of_heads -> of_tokens, of which it writes the columns of the group of heads of each rank.
  [[nodiscard]] Trip gather(std::vector<Item> items, std::string_view what, Meanwhile meanwhile) const;

 private:
  enum class Direction { scatter, gather };
  [[nodiscard]] Trip start(std::vector<Item> items, Direction direction, std::string_view what,
                           Meanwhile meanwhile) const;
  [[nodiscard]] Trip start_messages(std::vector<Item> items, Direction direction, std::string_view what) const;
  [[nodiscard]] Trip start_puts(std::vector<Item> items, Direction direction, std::string_view what,
                                Meanwhile meanwhile) const;

  Communicator& group_;
  HeadGroup heads_;
};

}  // namespace cp_pool
