// Wrong answers on request (--inject wrong): changes results of the attention before they are verified.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace cp_pool {

// The RunOptions::on_result of a case with `wrong` faults.
class WrongResults {
 public:
  // tensors: the TENSORs of the case's `wrong` faults.
  WrongResults(std::vector<std::string> tensors, int rank) : tensors_(std::move(tensors)), rank_(rank) {}

  [[nodiscard]] bool any() const { return !tensors_.empty(); }
  // Changes the result if a fault asks for it, and writes the fault to stderr. A step and its repetition are changed
  // alike, so that their bits stay equal; only kRepeatedOut and kRepeatedDq make them differ.
  void operator()(std::string_view tensor, bool repeated, at::Tensor& result);
  // Called after the case: writes to stderr which tensors the case does not have. Their faults have no effect.
  void name_missing() const;

 private:
  [[nodiscard]] bool asked_for(std::string_view tensor) const;
  void change(std::string_view name, at::Tensor& result);

  std::vector<std::string> tensors_;
  int rank_;
  std::set<std::string, std::less<>> changed_;
};

// Returns a copy in which every finite element except 0 is larger by 16 * (1 + the largest magnitude), far beyond
// rounding in any dtype. Padding (0, or -inf in lse) is unchanged. If every element is 0 or not finite, all elements
// are changed.
at::Tensor wrong_values(const at::Tensor& right);

}  // namespace cp_pool
