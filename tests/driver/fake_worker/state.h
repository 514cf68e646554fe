// Cases that leave something behind in the worker, and cases that fail where something was left.
#pragma once

#include <string>

namespace cp_pool::fake {

// counter: a file that counts cases over all starts of the worker; may be empty.
class State {
 public:
  explicit State(std::string counter) : counter_(std::move(counter)) {}

  // A case is run: what it leaves is left. Returns whether it fails:
  //   uses_X             after leaves_X: X is seed, variable, group or plan
  //   uses_memory        after two of leaves_memory
  //   fails_as_third     if it is the third case of this worker
  //   fails_one_in_three on its first, fourth, .. time (--counter)
  //   errors_at_first    on its first time (--counter), but that its outcome is an error
  bool run(const std::string& kind);

 private:
  // How often cases of this kind that count were run before, in any worker.
  [[nodiscard]] int count() const;

  std::string counter_;
  int cases_ = 0;
};

}  // namespace cp_pool::fake
