// Runs a function in a process of its own, because it may take long or crash and must then be given up.
#pragma once

#include <functional>
#include <sys/types.h>
#include <utility>

#include "driver/process/unique_fd.h"

namespace cp_pool {

class ForkedHelper {
 public:
  // The child calls the function with a descriptor to write to, and ends. It has no other descriptors of this process
  // but the standard ones, a process group of its own, and dies with this process. Call on the main thread, which must
  // be the only one. Throws std::system_error.
  explicit ForkedHelper(const std::function<void(int output)>& function);
  ForkedHelper(const ForkedHelper&) = delete;
  ForkedHelper& operator=(const ForkedHelper&) = delete;
  // Kills it, if it still runs, and takes it away; one that is stuck in the kernel is left to reap_adopted
  // (process_tree.h), which must pass over pid() until then.
  ~ForkedHelper();

  [[nodiscard]] pid_t pid() const { return pid_; }

  // The other end of the descriptor; at its end the child has ended, too. Once.
  UniqueFd take_output() { return std::move(output_); }

 private:
  pid_t pid_ = -1;
  UniqueFd output_;
};

}  // namespace cp_pool
