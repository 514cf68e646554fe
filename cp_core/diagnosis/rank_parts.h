// The ways in which ranks divide their work: rings and their steps, the two chunks of a rank, parts that are merged.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/dense_problem.h"
#include "cp_core/diagnosis/simulated_step.h"

namespace cp_pool::diagnosis {

// The remainder, 0 .. n - 1.
constexpr int modulo(int number, int n) {
  return ((number % n) + n) % n;
}

// A ring in which each place passes K and V on to the next one.
struct Ring {
  int size = 1;
  int of_place = 1;  // how many ranks have each place; they hold different heads of the same rows

  [[nodiscard]] int at(int rank) const { return rank / of_place; }
  [[nodiscard]] at::Tensor at(const at::Tensor& ranks) const { return ranks.div(of_place, "floor"); }
  // The step at which a rank has the keys of `owner`, if each step brings those of the place before.
  [[nodiscard]] int step(int rank, int owner) const { return modulo(at(rank) - at(owner), size); }
  // The rank at a place, taken modulo the size, that has the same heads as rank `like`.
  [[nodiscard]] int rank_at(int like, int of) const { return modulo(of, size) * of_place + like % of_place; }
};

// The ring of all ranks, preceded by the ring of inner groups of ranks if the type of the case has these.
std::vector<Ring> rings_of(const DenseProblem& dense);

// int64 [ranks, kv rows]: the step of the ring at which the rank has the row, if each step brings K and V of the rank
// before. 0 = the rank's own keys.
at::Tensor steps_of_ranks(const DenseProblem& dense, const Ring& ring);
// int64, pairs: the step at which the pair is computed.
at::Tensor step_of_pairs(const DenseProblem& dense, const Ring& ring);
// int64 [ranks, rows]: for each rank and each row, the row at the same index among the rows of rank
// source(rank, owner), where `owner` holds the row. Undefined unless all ranks have equally many rows of every
// sequence.
at::Tensor rows_at_same_place(const Side& side, int ranks, const std::function<int(int rank, int owner)>& source);
// int64 [rows]: the index of each row if all rows are sorted by sequence and position.
at::Tensor order_in_sequences(const Side& side);

// int64 [rows]: 0 in the first stretch of consecutive positions that a rank has of a sequence, 1 in later ones. Two
// adjacent chunks are one stretch.
at::Tensor stretch_of_rows(const Side& side);

// One way to cut the pairs into parts, numbered in the order in which they are merged.
struct Parts {
  std::string what;    // "one part per step of the ring"
  at::Tensor of_pair;  // int64, pairs: the number of the part
  std::int64_t count = 0;
  // Finer cuts with twice as many parts, which may apply to only some of the queries. They cut each part between the
  // two chunks of a rank's keys, or between its two stretches, for all ranks or only for other ranks than the query's.
  std::vector<at::Tensor> finer = {};
};
// with_own_last: also the steps of the rings with the step of a rank's own keys as the last one.
std::vector<Parts> parts_of(const DenseProblem& dense, bool with_own_last = false);

// An order of heads.
using HeadMap = std::vector<std::int64_t>;
HeadMap mapped(std::int64_t count, const std::function<std::int64_t(std::int64_t)>& to);

// Into how many blocks this many heads may be cut: one for each rank, or for each that computes some of the heads.
std::set<std::int64_t> block_counts(const DenseProblem& dense, std::int64_t heads);

// A wrong order of heads, or a wrong choice of the head whose value (a sink, a bias) each head has.
struct WrongHeads {
  std::string says;  // "each block of heads is in the place of the next block"
  HeadMap of;        // for each place, the head that is there
};
// The ways in which `count` heads in `blocks` blocks get into each other's place. Their number does not depend on
// these.
std::vector<WrongHeads> exchanged_heads(std::int64_t count, std::int64_t blocks);
// These, and others in which several heads have the value of one. Each is there once. what: "the sinks"
std::vector<WrongHeads> misplaced_heads(const DenseProblem& dense, const std::string& what);

// A wrong choice of the queries whose share each rank counts.
struct QueryShares {
  std::string says;   // "counts only the rank's own queries"
  at::Tensor counts;  // fp64 [ranks, ranks]: how often the first rank counts the share of the second rank's queries
};
std::vector<QueryShares> incomplete_shares(int ranks);

// --- Which of several models, that cut the keys of queries into other parts, fits each row best ---

// int64 [rows of `by`]: the index of the model that is nearest to what ranks returned as out and lse (by = out), dq or
// dk; the first one among equals. All 0 if a rank did not return it. dk: the models must be of a whole problem.
at::Tensor nearest_model(const std::vector<SimulatedStep>& models, at::Tensor WholeResults::* by);

// Takes each element of the member from the model with that index. number: int64, broadcastable to the member's shape.
at::Tensor chosen(const at::Tensor& number, const std::vector<SimulatedStep>& models,
                  at::Tensor SimulatedStep::* member);

}  // namespace cp_pool::diagnosis
