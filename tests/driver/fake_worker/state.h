// Cases that leave state behind in the worker, and cases that fail if they find such state.
#pragma once

#include <string>

namespace cp_pool::fake {

// The state that cases of one worker process leave behind. `counter` is the path of a file that counts cases over all
// starts of the worker; it may be empty.
class State {
 public:
  explicit State(std::string counter) : counter_(std::move(counter)) {}

  // Runs a case, which may leave state behind. Returns true if the case fails:
  //   uses_X             fails after leaves_X, where X is seed, variable, group or plan
  //   uses_memory        fails after two cases leaves_memory
  //   fails_as_third     fails if it is the third case of this process
  //   fails_one_in_three fails the first, fourth, .. time that the counter counts
  //   errors_at_first    is an error, not a fail, the first time that the counter counts
  bool run(const std::string& kind);

 private:
  // Counts this case in the file. Returns how many cases were counted before, in any start of the worker.
  [[nodiscard]] int count() const;

  std::string counter_;
  int cases_ = 0;
};

}  // namespace cp_pool::fake
