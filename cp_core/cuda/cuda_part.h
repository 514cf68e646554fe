// The door to everything that needs CUDA. It lives in a module of its own (libcp_core_cuda.so), so that CPU ranks never
// load the CUDA libraries: a process has no CUDA part until load_cuda_part().
//
// Each folder declares what it calls there as a table, a struct of pointers to functions: CudaDevice (cuda/device.h),
// RowKernels (thd/row_kernels.h), GpuGroups (comm/gpu_groups.h), CudaBackends (attention/cuda_backends.h), CudaSteps
// (perf/cuda_steps.h), VerifyKernels (verify/cuda_kernels.h). cuda_module/cuda_module.cpp gives them all.
//
// Everything given tensors works on the current stream of their device, and never waits for the device unless it says
// so.
#pragma once

#include <atomic>
#include <stdexcept>

namespace cp_pool {

// No CUDA on this machine, or not in this build. The text says what is missing.
class CudaUnavailable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Loads the module beside the running program (or on the library path), once. Throws CudaUnavailable: not built, or a
// library is missing. From any thread: loading takes most of a second, and can overlap other work.
void load_cuda_part();

namespace detail {

// Null: not given. The module finds the program's own, as it does with all of cp_core.
template <typename Table>
std::atomic<const Table*>& given_table() {
  static std::atomic<const Table*> table{nullptr};
  return table;
}

[[noreturn]] void throw_no_cuda_part();

}  // namespace detail

// Called once for each table, by the module when it is loaded, or by programs that link the part.
template <typename Table>
void give_cuda_part(const Table& table) {
  static const Table given = table;
  detail::given_table<Table>().store(&given, std::memory_order_release);
}

// Throws CudaUnavailable if there is none: a CUDA tensor in a process that did not load the part.
template <typename Table>
const Table& cuda_part() {
  const Table* table = detail::given_table<Table>().load(std::memory_order_acquire);
  if (table == nullptr) detail::throw_no_cuda_part();
  return *table;
}

}  // namespace cp_pool
