// The inputs of a pass of a model, by computed head, and their products with the keys that ranks hold at places.
#pragma once

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/model.h"

namespace cp_pool::diagnosis {

class Operands {
 public:
  // absolute: takes the absolute values of the inputs, for magnitudes.
  Operands(const World& world, const Pass& pass, bool absolute);

  // [computed heads, q rows, dim].
  [[nodiscard]] at::Tensor q() const;
  [[nodiscard]] at::Tensor dout() const;
  // q . k and dout . v of all pairs: [heads, q rows, kv rows], where the last axis is the place of the key.
  [[nodiscard]] at::Tensor raw_scores() const;
  [[nodiscard]] at::Tensor raw_dp() const;
  // Multiplies [heads, q rows, kv rows] by the k or v held at the places. Returns [heads, q rows, dim].
  [[nodiscard]] at::Tensor times_k(const at::Tensor& of_places) const;
  [[nodiscard]] at::Tensor times_v(const at::Tensor& of_places) const;
  // bool, pairs: whether the pair reads NaN if the query attends to the key. Undefined: no pair does.
  [[nodiscard]] at::Tensor poisoned_pairs() const;
  // bool, pairs: whether K and V are exchanged at the place. Undefined: nowhere.
  [[nodiscard]] at::Tensor exchanged_pairs() const;

 private:
  enum class Keys { k, v };

  [[nodiscard]] at::Tensor rows_of(const at::Tensor& other, const at::Tensor& defined) const;
  [[nodiscard]] at::Tensor keys(Keys which) const;
  [[nodiscard]] const at::Tensor& held(Keys which) const;
  [[nodiscard]] at::Tensor held_by_pair(Keys which) const;
  [[nodiscard]] at::Tensor products(const at::Tensor& queries, Keys which, const at::Tensor& known) const;
  [[nodiscard]] at::Tensor at_places(const at::Tensor& of_rows, Keys which) const;
  [[nodiscard]] at::Tensor at_rows(const at::Tensor& of_places, Keys which) const;
  [[nodiscard]] at::Tensor weighted(const at::Tensor& of_places, Keys which) const;
  [[nodiscard]] bool has_defined_inputs() const;

  const World& world_;
  const Pass& pass_;
  bool absolute_;
};

}  // namespace cp_pool::diagnosis
