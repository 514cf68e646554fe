// The inputs of a pass of a model, by computed head, and their products with the keys that ranks hold at places.
#pragma once

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/simulated_step.h"

namespace cp_pool::diagnosis {

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

}  // namespace cp_pool::diagnosis
