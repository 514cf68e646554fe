// What was observed of each pair of a query and a key, by head. Heads are asked the same and mostly answer the same, so
// those that do share one matrix.
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
    at::Tensor values;                // fp32 [q, kv]; NaN where nothing was asked yet, or NaN was observed
  };

  // Values of heads count as equal within `tolerance`, relative. No more than most_values numbers are kept: heads that
  // differ when there is no room are unread.
  PairValues(std::int64_t heads, std::int64_t q, std::int64_t kv, double tolerance, std::int64_t most_values);

  // values: [rows, heads, any]. Heads whose values differ go separate ways from here on.
  void tell_apart(const at::Tensor& values);
  // values: [q, heads, count]: of all queries and the keys from `first` on.
  void set_keys(std::int64_t first, const at::Tensor& values);
  // values: [kv, heads, count]: of all keys and the queries from `first` on.
  void set_queries(std::int64_t first, const at::Tensor& values);

  // The first holds head 0.
  [[nodiscard]] const std::vector<HeadClass>& classes() const { return classes_; }
  [[nodiscard]] const std::vector<std::int64_t>& unread() const { return unread_; }

 private:
  double tolerance_;
  std::int64_t most_classes_;
  std::vector<HeadClass> classes_;
  std::vector<std::int64_t> unread_;
};

}  // namespace cp_pool::diagnosis
