// A simulated implementation of context-parallel attention. It follows the definition until a hypothesis changes it.
//
// Tensors of pairs are [q rows, kv rows], with the rows of DenseProblem. A "place" is where a rank expects a certain kv
// row; after a mistake, the rank may hold another row there.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/dense_problem.h"
#include "cp_core/verify/reference.h"

namespace cp_pool::diagnosis {

// How a pass (the forward or the backward) computes scores from its inputs.
struct Pass {
  // fp64, pairs or [computed heads, pairs]: how often the query attends to the key at the place; 0 or 1 by the
  // definition.
  at::Tensor times;
  // int64 [ranks, kv rows]: which row the rank really holds at the place; -1 = zeros. Undefined: every row is at its
  // place.
  at::Tensor held;
  at::Tensor held_v;  // the same for V alone. Undefined: as `held`
  // bool [ranks, kv rows]: the places at which K and V are exchanged. Undefined: nowhere.
  at::Tensor exchanged;
  double scale = 0;
  double softcap = 0;               // 0: none
  bool cap_has_bias = false;        // the softcap is taken of scores with their bias
  double least_score = -kInfinity;  // smaller scores, with scale and bias, are raised to it
  at::Tensor bias_index;  // int64, pairs: the element of the bias that the pair reads, as DenseProblem::bias_index
  // For each computed head: which head of each input it reads.
  std::vector<std::int64_t> q_head;
  std::vector<std::int64_t> kv_head;
  std::vector<std::int64_t> v_head;  // of V alone; empty: as kv_head
  std::vector<std::int64_t> dout_head;
  std::vector<std::int64_t> bias_head;
  std::vector<std::int64_t> sink_head;
  // Inputs that replace those of the problem, in the same shapes. Undefined: those of the problem.
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
  at::Tensor dout;
  // bool, one per row: whether the inputs hold NaN there. Undefined: as in the problem.
  at::Tensor q_poisoned;
  at::Tensor kv_poisoned;
};

// The inputs of a pass of a model, by computed head, and their products with the keys that ranks hold at places.
class Operands {
 public:
  // absolute: takes the absolute values of the inputs, for magnitudes.
  Operands(const DenseProblem& dense, const Pass& pass, bool absolute)
      : dense_(dense), pass_(pass), absolute_(absolute) {}

  // [computed heads, q rows, dim].
  [[nodiscard]] at::Tensor q() const { return queries(Keys::k); }
  [[nodiscard]] at::Tensor dout() const { return queries(Keys::v); }
  // q . k and dout . v of all pairs: [heads, q rows, kv rows], where the last axis is the place of the key.
  [[nodiscard]] at::Tensor raw_scores() const { return products(Keys::k); }
  [[nodiscard]] at::Tensor raw_dp() const { return products(Keys::v); }
  // Multiplies [heads, q rows, kv rows] by the k or v held at the places. Returns [heads, q rows, dim].
  [[nodiscard]] at::Tensor times_k(const at::Tensor& of_places) const { return weighted(of_places, Keys::k); }
  [[nodiscard]] at::Tensor times_v(const at::Tensor& of_places) const { return weighted(of_places, Keys::v); }
  // bool, pairs: whether the pair reads NaN if the query attends to the key. Undefined: no pair does.
  [[nodiscard]] at::Tensor poisoned_pairs() const;
  // bool, pairs: whether K and V are exchanged at the place. Undefined: nowhere.
  [[nodiscard]] at::Tensor exchanged_pairs() const;

 private:
  enum class Keys { k, v };

  [[nodiscard]] at::Tensor queries(Keys which) const;  // that are multiplied by these keys
  [[nodiscard]] at::Tensor keys(Keys which) const;
  [[nodiscard]] at::Tensor held_by_pair(Keys which) const;  // undefined: every row is at its place
  [[nodiscard]] at::Tensor products(Keys which) const;
  [[nodiscard]] at::Tensor at_places(const at::Tensor& of_rows, Keys which) const;
  [[nodiscard]] at::Tensor at_rows(const at::Tensor& of_places, Keys which) const;
  [[nodiscard]] at::Tensor weighted(const at::Tensor& of_places, Keys which) const;

  const DenseProblem& dense_;
  const Pass& pass_;
  bool absolute_;
};

// One step of a merge, which joins a part to the result so far. Tensors are [heads, q rows]; an lse is kNothing where
// no key was seen.
struct Merge {
  at::Tensor keep;  // factor of the out that was merged so far
  at::Tensor add;   // factor of the part's out
  at::Tensor lse;   // of the merged result
};
inline constexpr double kNothing = -1e30;
using MergeRule = std::function<Merge(const at::Tensor& lse, const at::Tensor& part_lse, bool first)>;
// The correct merge.
Merge merge_rightly(const at::Tensor& lse, const at::Tensor& part_lse, bool first);

struct Backward;

struct SimulatedStep {
  // Starts as the definition. Keeps a pointer to the problem.
  explicit SimulatedStep(const DenseProblem& of);

  const DenseProblem* dense;
  Pass forward;
  Pass backward;

  // int64, pairs: the number of the part that the pair belongs to, from 0 in the order in which parts are merged.
  // Undefined: there is one part.
  at::Tensor part;
  std::int64_t parts = 1;
  MergeRule merge = merge_rightly;
  bool merges_rightly = true;  // `merge` is correct
  bool counts_parts = false;   // out is divided by the number of parts in which the row sees a key

  // The probabilities of a valid query without keys are NaN in its whole sequence, as those of a softmax over no key
  // are. Its score gradients are 0, as those of masked scores are.
  bool nan_without_keys = false;

  double sink_times = 1;  // how often the sink is counted
  at::Tensor sink;        // [heads], replaces the sink of the problem
  bool sink_needs_a_key = false;
  bool needs_all_rows = false;  // cannot be applied to a problem with only some of the queries
  // Changes the results of the forward as they are returned: out [q rows, heads, dim], lse [q rows, heads, 1].
  std::function<void(const DenseProblem&, verify::Results&)> returned;
  // Changes the gradients as they are returned. Is applied to their magnitudes too, and so must be linear.
  std::function<void(const DenseProblem&, verify::Results&)> returned_gradients;
  // The backward recomputes the probability of every pair from the out and lse that were returned, as most real
  // backwards do. Otherwise the backward is the derivative of the forward.
  bool from_returned = false;
  // Replaces sum_gradients() (simulated_step.h) and has its parameters.
  std::function<void(const SimulatedStep&, const Backward&, bool absolute, verify::Results&)> sums;
  bool lse_of_part = false;
  bool delta_of_part = false;
  bool delta_missing = false;
  bool slope_missing = false;         // the backward takes the capped score for the score
  bool exponentials_divided = false;  // p = exp(score) / exp(lse), in fp32
  // For each computed head: the head of dout and out from which its delta is taken. Empty: its own.
  std::vector<std::int64_t> delta_head;
  std::vector<std::int64_t> lse_head;  // for each computed head: the head whose lse it takes. Empty: its own

  // For each computed head: the head to which its gradients are added.
  std::vector<std::int64_t> dq_head;
  std::vector<std::int64_t> dkv_head;
  std::vector<std::int64_t> dk_head;  // of dk alone; empty: as dkv_head
  // int64 [ranks, kv rows]: the row to which the gradients of a rank's place are added; -1 = none. Undefined: the row
  // of the place.
  at::Tensor landing;
  // fp64, pairs: how often the pair counts in each gradient. Undefined: once.
  at::Tensor weight_dq;
  at::Tensor weight_dk;
  at::Tensor weight_dv;
  at::Tensor weight_dbias;
  // fp64 [ranks, ranks]: how often the first rank counts the share of the second rank's queries. shares_dbias is used
  // only in thd, where every rank returns the whole dbias.
  at::Tensor shares_dbias;
  at::Tensor shares_dsink;
  at::Tensor dbias_heads;  // fp64 [ranks, heads]: how often the rank counts the head in a dbias that all heads share
  bool dbias_lands_at_own_head = false;  // else it lands at the head whose bias was read
  bool dbias_of_all_ranks = false;       // where each rank returns its own bias rows: they count all ranks' queries
};

// Results in which each tensor has the rows of all ranks concatenated: out, lse and dq have the q rows, dk and dv the
// kv rows, max_logit and dsink one row per rank, dbias each rank's rows of the bias.
using WholeResults = verify::Results;

struct Forward {
  // [heads, q rows, kv rows]
  at::Tensor scores;  // with scale, softcap and bias, of all pairs, visible or not
  at::Tensor slope;   // of the softcap; undefined without one
  at::Tensor part_p;  // probabilities within a part: they sum to 1 in each part
  at::Tensor p;       // probabilities as they count in out
  // [heads, q rows]
  at::Tensor lse;
  at::Tensor part_lse;  // [heads, q rows, parts]
  at::Tensor weights;   // [heads, q rows, parts]: the factor of each part in out
  WholeResults results;
};

struct Backward {
  // [heads, q rows, kv rows]
  at::Tensor p;      // probabilities as they count in dv
  at::Tensor ds;     // gradients of the scores
  at::Tensor slope;  // of the softcap, by which ds is multiplied in dq and dk; undefined without a softcap
  at::Tensor dp;     // dout . v
  at::Tensor delta;  // [heads, q rows, 1]
  // [heads, q rows]; undefined if there is no sink
  at::Tensor p_sink;
  at::Tensor dsink;  // what each row adds to the gradient of the sink
};

Forward run_forward(const SimulatedStep& model);
Backward run_backward(const SimulatedStep& model, const Forward& forward);

// Computes the same sums over absolute values, in units of c u. They are the scale of rounding errors
// (docs/numerics.md). backward: null unless the case trains.
WholeResults magnitudes(const SimulatedStep& model, const Forward& forward, const Backward* backward);

// --- gradient_sums.cpp: gradients of scores, summed to the gradients of the inputs as each rank receives them ---

// Fills the gradients of `results`. absolute: takes absolute values of the inputs, for magnitudes.
void sum_gradients(const SimulatedStep& model, const Backward& backward, bool absolute, WholeResults& results);
// Returns dq alone. The problem of the model may have only some of the queries.
at::Tensor sum_dq(const SimulatedStep& model, const Backward& backward);
// Returns dk and dv of these kv rows alone: [keys, kv_heads, dim]. No gradient may land elsewhere than at its own row,
// and K and V may not be exchanged.
std::pair<at::Tensor, at::Tensor> sum_dk_dv(const SimulatedStep& model, const Backward& backward,
                                            const at::Tensor& keys);
// Does the same by SimulatedStep::sums if the model has it, and applies SimulatedStep::returned_gradients.
void sum_by(const SimulatedStep& model, const Backward& backward, bool absolute, WholeResults& results);

}  // namespace cp_pool::diagnosis
