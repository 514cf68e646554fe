#include <utility>

#include "cases/comm_facts.h"
#include "cases/lengths.h"
#include "cp_core/context_parallel/make_backend.h"
#include "cp_core/context_parallel/prepare.h"
#include "cp_core/own/own_implementation.h"
#include "cp_core/own/whole_sequences.h"
#include "cp_core/verify/canonical.h"
#include "cp_core/verify/mask_probe.h"

namespace cp_pool {

std::vector<Preparation> prepare_case(const Case& c, int rank, const FastBackend& backend) {
  const SequenceLengths lengths = resolve_lengths(c);
  std::vector<Preparation> pieces;
  // run_case runs steps of these two cases. Steps that are replayed as a graph are not prepared.
  for (const Case& step : {c, verify::mask_probe_case(c, head_ranks(c))}) {
    const AttentionProblem problem =
        step.replicated > 0 ? whole_sequences_problem(step, lengths) : make_problem(step, lengths);
    auto of_step = preparations(problem, verify::scalar_type_of(step.dtype), c.cp_size, rank, step.training, backend);
    for (auto& piece : of_step) pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::vector<Preparation> prepare_case(const Case& c, int rank, const at::Device& device) {
  if (!skip_reason(c, device).empty()) return {};
  const auto backend = make_backend(c.backend, device);
  return prepare_case(c, rank, fast_of(*backend));
}

}  // namespace cp_pool
