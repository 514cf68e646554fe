// Finds out which keys each query really saw. It runs forwards with q = 0, so that all visible keys have the same
// weight, and with a V that is one-hot for one block of keys per step, so that each element of a query's output is the
// weight of one key.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cases/diagnosis.h"
#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/observation.h"

namespace cp_pool::diagnosis {

struct SeenKeys {
  // Why nothing could be observed, as a sentence; empty if something could.
  std::string why_not;
  // fp64 [rows of q, rows of kv] of the grid (wrong_pairs.h): how often the query saw the key. NaN where that could not
  // be observed, and in padding queries if the implementation promises nothing about them. A number that is not whole
  // is a weight, relative to that of a key seen once.
  at::Tensor times;
  at::Tensor expected;        // what `times` should be by the definition: 0 and 1
  bool whole_numbers = true;  // all observed times are whole numbers, and out holds nothing but values of keys
  bool wrong = false;         // times differs from expected
  bool heads_differ = false;  // some of the heads asked saw other keys than `times` says
  at::Tensor q_places;        // int64: for each row of DenseProblem, its row of the grid
  at::Tensor kv_places;
  WrongPairs pairs;                    // where times differs from expected
  std::optional<MaskPicture> picture;  // set if times differ from expected somewhere
  std::vector<std::string> notes;      // sentences: what else was seen
};

// Runs the failing case again with q = 0, no bias, a vanilla softmax, and as few heads as the implementation declares
// for its mask probe. A case with more than 4096 rows of queries or keys is not run. trusts_lse: an lse may show that a
// query saw all its keys several times. Collective; only rank 0 gets the answer.
SeenKeys find_seen_keys(Questions& questions, const SizedCase& of, bool trusts_lse);

// What the weights that a head gives to keys, and its lse, say of each query.
struct Reading {
  at::Tensor times;         // fp64 [q, kv]: as SeenKeys::times
  at::Tensor weighs;        // bool [q]: they are no whole numbers, or out holds something that is no value of V
  at::Tensor contradicted;  // bool [q]: lse is not the logarithm of the number of keys that the weights show
};

// weights: fp64 [q, kv]; lse: fp64 [q]; undefined if the implementation returns none. Without an lse, times are known
// only up to a factor, which is chosen so that the smallest is 1. tolerance: see weight_tolerance.
Reading read_weights(const at::Tensor& weights, const at::Tensor& lse, double tolerance, bool trusts_lse);

// The relative error that rounding may leave in the weight of a key: probabilities, outputs and the partial results of
// each rank may be rounded to the dtype. In fp32 it allows for fast exponentials and TF32.
double weight_tolerance(DType dtype, int ranks);

// The hypothesis that the keys which queries saw explain all wrong results. Empty if nothing wrong was seen, or if what
// was seen is no mask. wrong_queries: bool, one for each row of DenseProblem.
Hypotheses seen_keys_hypotheses(const SeenKeys& seen, const at::Tensor& wrong_queries);

}  // namespace cp_pool::diagnosis
