// Compares what a model predicts with what the ranks returned.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/dense_problem.h"
#include "cp_core/diagnosis/simulated_step.h"
#include "cp_core/verify/expected.h"

namespace cp_pool::diagnosis {

// One kind of result as the ranks returned it, and the correct values.
struct Given {
  std::string_view name;
  at::Tensor WholeResults::* member = nullptr;
  verify::RowPart part = verify::RowPart::whole;  // of the member's rows, which `value` and `right` have
  at::Tensor value = {};                          // fp64 [rows, heads, dim], the rows of all ranks concatenated
  at::Tensor right = {};                          // the correct values in the same shape
  at::Tensor baseline = {};                       // fp64 [rows, heads]: error of the baseline
  at::Tensor floor = {};                          // fp64 [rows, heads]: c u A (docs/numerics.md)
  at::Tensor judged = {};                         // bool [rows]
  at::Tensor rank = {};                           // int64 [rows]
  double unit = 0;                                // c u
  double typical_baseline = 0;                    // 90th percentile of baseline / floor
  double accepted = 0;                            // the largest sum of squared errors that plausible() accepts
};

// What a result has everywhere in place of a correct value x: x * factor + shift.
struct Constant {
  double factor = 1;
  double shift = 0;      // only of an lse
  double precision = 0;  // the relative error of the factor that the bounds allow
};
// nullopt: the result does not differ by a constant from the correct one, within twice its bounds.
std::optional<Constant> constant_of(const Given& given);

// The value below which this share of the values lies; 0 if there are none.
double quantile(const at::Tensor& values, double share);

class Fits {
 public:
  explicit Fits(const DenseProblem& dense);

  // The results that the case has and that every rank returned.
  [[nodiscard]] const std::vector<Given>& given() const { return given_; }

  // Returns error / bound for every row and head, [rows, heads]; 0 in rows that are not judged. predicted and magnitude
  // have whole rows; magnitude is in units of c u. A row that the prediction does not change keeps the bound of the
  // correct result. Without a prediction: the errors of the results, which should be the correct values.
  [[nodiscard]] at::Tensor errors(const Given& given, const at::Tensor& predicted = {},
                                  const at::Tensor& magnitude = {}) const;
  // A cheap test, by values alone, of whether the prediction is near enough to be worth computing magnitudes for.
  [[nodiscard]] static bool plausible(const Given& given, const at::Tensor& predicted);
  // Returns only these rows of a result, of which those are judged that `concerns` (bool, for all rows) names.
  [[nodiscard]] Given of_rows(const Given& given, const at::Tensor& rows, const at::Tensor& concerns) const;

 private:
  void add(const DenseProblem& dense, const verify::ExpectedTensor& expected, at::Tensor WholeResults::* member,
           const at::Tensor& value, const at::Tensor& canonical, const at::Tensor& rank);
  void add_dbias(const DenseProblem& dense, const verify::ExpectedTensor& expected, const at::Tensor& value);
  // Sets what plausible() needs.
  void prepare(Given& given) const;

  double bound_factor_;
  std::vector<Given> given_;
};

}  // namespace cp_pool::diagnosis
