// The inputs of a pass of a model, by computed head, and products with what a rank holds at the places of keys.
#pragma once

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/model.h"

namespace cp_pool::diagnosis {

class Operands {
 public:
  // absolute: of absolute values, for magnitudes.
  Operands(const World& world, const Pass& pass, bool absolute);

  // [heads, q rows, dim] of the computed heads.
  [[nodiscard]] at::Tensor q() const;
  [[nodiscard]] at::Tensor dout() const;
  // q . k and dout . v of all pairs, [heads, q rows, kv rows], keys at their places.
  [[nodiscard]] at::Tensor raw_scores() const;
  [[nodiscard]] at::Tensor raw_dp() const;
  // [heads, q rows, kv rows] times k or v at their places: [heads, q rows, dim].
  [[nodiscard]] at::Tensor times_k(const at::Tensor& of_places) const;
  [[nodiscard]] at::Tensor times_v(const at::Tensor& of_places) const;
  // bool, pairs: a value that is NaN is read if the pair meets. Undefined: none is.
  [[nodiscard]] at::Tensor poisoned_pairs() const;
  // bool, pairs: K stands for V and V for K at the place. Undefined: nowhere.
  [[nodiscard]] at::Tensor exchanged_pairs() const;

 private:
  enum class Keys { k, v };

  [[nodiscard]] at::Tensor rows_of(const at::Tensor& other, const at::Tensor& defined) const;
  [[nodiscard]] at::Tensor keys(Keys which) const;
  [[nodiscard]] at::Tensor held_by_pair() const;
  [[nodiscard]] at::Tensor products(const at::Tensor& queries, Keys which, const at::Tensor& known) const;
  [[nodiscard]] at::Tensor at_places(const at::Tensor& of_rows) const;
  [[nodiscard]] at::Tensor at_rows(const at::Tensor& of_places) const;
  [[nodiscard]] at::Tensor weighted(const at::Tensor& of_places, Keys which) const;
  [[nodiscard]] bool has_defined_inputs() const;

  const World& world_;
  const Pass& pass_;
  bool absolute_;
};

}  // namespace cp_pool::diagnosis
