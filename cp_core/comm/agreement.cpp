#include "cp_core/comm/agreement.h"

#include <ATen/ops/full.h>

namespace cp_pool {

int largest_anywhere(int here, Communicator& group, const at::Device& device, const char* what) {
  at::Tensor largest = at::full({1}, here, at::TensorOptions(device).dtype(at::kInt));
  group.all_reduce(largest, ReduceOp::max, what)->wait();
  group.synchronize(what);
  return largest.item<int>();
}

bool anywhere(bool here, Communicator& group, const at::Device& device, const char* what) {
  return largest_anywhere(here ? 1 : 0, group, device, what) != 0;
}

}  // namespace cp_pool
