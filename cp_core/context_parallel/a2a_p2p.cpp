#include "cp_core/context_parallel/a2a_p2p.h"

#include <stdexcept>

#include <fmt/format.h>

#include "cp_core/context_parallel/a2a.h"

namespace cp_pool {
namespace {

void check_pairs(const CpGroups& groups) {
  if (groups.inner && groups.outer) return;
  throw std::invalid_argument(
      fmt::format("a2a+p2p needs an even number of ranks, 4 at least: there are {}", groups.cp->size()));
}

}  // namespace

PackedForward a2a_p2p_forward(const Context& context, const PackedInputs& inputs) {
  check_pairs(context.groups);
  return a2a_forward(context, *context.groups.inner, context.groups.outer.get(), inputs);
}

PackedGradients a2a_p2p_backward(const Context& context, const PackedInputs& inputs,
                                 const AttentionBackwardOperands& backward, const SavedForward& saved) {
  check_pairs(context.groups);
  return a2a_backward(context, *context.groups.inner, context.groups.outer.get(), inputs, backward, saved);
}

}  // namespace cp_pool
