// Holds what a model predicts against what the ranks gave.
#pragma once

#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/simulation.h"
#include "cp_core/diagnosis/world.h"

namespace cp_pool::diagnosis {

// What the ranks gave of one kind of result, and what is right.
struct Given {
  std::string_view name;
  at::Tensor WholeResults::* member = nullptr;
  at::Tensor value = {};        // fp64 [rows, heads, dim], the rows of all ranks behind each other
  at::Tensor right = {};        // the same by the definition
  at::Tensor baseline = {};     // fp64 [rows, heads]: error of the baseline
  at::Tensor floor = {};        // fp64 [rows, heads]: c u A
  at::Tensor judged = {};       // bool [rows]
  at::Tensor rank = {};         // int64 [rows]
  double unit = 0;              // c u
  double typical_baseline = 0;  // in units of the floor

  // Some of its rows alone.
  [[nodiscard]] Given of_rows(const at::Tensor& rows) const;
};

class Fits {
 public:
  explicit Fits(const World& world);

  // Those that the case has and that were given by every rank.
  [[nodiscard]] const std::vector<Given>& given() const { return given_; }

  // Error / bound of every row and head, [rows, heads]; 0 in rows that are not judged. predicted: in the shape of
  // Given::value; magnitude: likewise, in units of c u. A row that the prediction leaves right keeps its bound.
  [[nodiscard]] at::Tensor errors(const Given& given, const at::Tensor& predicted, const at::Tensor& magnitude) const;
  // The same of what is right.
  [[nodiscard]] at::Tensor errors(const Given& given) const { return errors(given, given.right, {}); }
  // Whether the prediction is near enough to look closer, by values alone.
  [[nodiscard]] bool plausible(const Given& given, const at::Tensor& predicted) const;

 private:
  void add(const World& world, std::string_view name, at::Tensor WholeResults::* member, const at::Tensor& value,
           const at::Tensor& canonical, const at::Tensor& rank);
  void add_dbias(const World& world, const at::Tensor& value);

  double bound_factor_;
  std::vector<Given> given_;
};

}  // namespace cp_pool::diagnosis
