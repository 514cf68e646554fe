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

// RunOptions::on_result of a case with such faults.
class WrongResults {
 public:
  // tensors: of the case's `wrong` faults.
  WrongResults(std::vector<std::string> tensors, int rank) : tensors_(std::move(tensors)), rank_(rank) {}

  [[nodiscard]] bool any() const { return !tensors_.empty(); }
  // Writes to stderr what it changes. A step and its repetition are changed alike, so that they still have equal bits;
  // kRepeatedStep alone makes them differ.
  void operator()(std::string_view tensor, bool repeated, at::Tensor& result);
  // After the case: writes to stderr which tensors it did not have. Such a fault does nothing.
  void name_missing() const;

 private:
  [[nodiscard]] bool asked_for(std::string_view tensor) const;
  void change(std::string_view name, at::Tensor& result);

  std::vector<std::string> tensors_;
  int rank_;
  std::set<std::string, std::less<>> changed_;
};

// Returns a copy in which every finite element but 0 is larger by 16 * (1 + the largest magnitude), far beyond rounding
// in any dtype. Padding (0, or -inf in lse) stays. If no element qualifies, all are changed.
at::Tensor wrong_values(const at::Tensor& right);

}  // namespace cp_pool
