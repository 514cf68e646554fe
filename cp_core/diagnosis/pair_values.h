// One observed value for each pair of a query and a key, by head. All heads are asked the same question and mostly give
// the same answer, so heads with equal answers form a class and share one matrix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace cp_pool::diagnosis {

class PairValues {
 public:
  struct HeadClass {
    std::vector<std::int64_t> heads;  // ascending
    at::Tensor values;                // fp32 [q, kv]; NaN where nothing was asked yet, and where NaN was observed
  };

  // Values of heads are equal if they differ by no more than `tolerance`, relatively. At most most_values numbers are
  // kept; a head that differs when there is no room for another matrix becomes unread.
  PairValues(std::int64_t heads, std::int64_t q, std::int64_t kv, double tolerance, std::int64_t most_values);

  // Splits classes: heads whose values differ are in different classes from now on. values: [rows, heads, any].
  void tell_apart(const at::Tensor& values);
  // Sets the values of all queries and `count` keys from `first` on. values: [q, heads, count].
  void set_keys(std::int64_t first, const at::Tensor& values);
  // Sets the values of all keys and `count` queries from `first` on. values: [kv, heads, count].
  void set_queries(std::int64_t first, const at::Tensor& values);

  // The first class contains head 0.
  [[nodiscard]] const std::vector<HeadClass>& classes() const { return classes_; }
  [[nodiscard]] const std::vector<std::int64_t>& unread() const { return unread_; }

 private:
  double tolerance_;
  std::int64_t most_classes_;
  std::vector<HeadClass> classes_;
  std::vector<std::int64_t> unread_;
};

}  // namespace cp_pool::diagnosis
