// Access to the CUDA part: everything that needs CUDA. The part is a module (libcp_core_cuda.so) that a process loads
// with load_cuda_part(), so that CPU ranks never load the CUDA libraries.
//
// Each folder declares the functions that it calls in the part as a table, a struct of pointers to functions:
// CudaDevice (cuda/device.h), RowKernels (thd/row_kernels.h), GpuGroups (comm/nccl/gpu_groups.h), CudaBackends
// (attention/cuda_backends.h), CudaSteps (perf/cuda_steps.h), VerifyKernels (verify/cuda_kernels.h).
// cuda_module/cuda_module.cpp fills all tables.
//
// Functions that take tensors work on the current stream of their device, and never wait for the device unless their
// comment says so.
#pragma once

#include <atomic>
#include <stdexcept>

namespace cp_pool {

// CUDA is missing on this machine or in this build. what() says what is missing.
class CudaUnavailable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Loads the module, once in a process. Throws CudaUnavailable if the module was not built or a library
// is missing. Callable from any thread; loading takes most of a second and can overlap other work.
void load_cuda_part();

namespace detail {

// The table of a type, null until it is given. The module uses the program's instance, since it resolves all symbols of
// cp_core in the program.
template <typename Table>
std::atomic<const Table*>& given_table() {
  static std::atomic<const Table*> table{nullptr};
  return table;
}

[[noreturn]] void throw_no_cuda_part();

}  // namespace detail

// Sets a table. Called once for each table, by the module when it is loaded or by a program that links the part.
template <typename Table>
void give_cuda_part(const Table& table) {
  static const Table given = table;
  detail::given_table<Table>().store(&given, std::memory_order_release);
}

// Returns a table. Throws CudaUnavailable if it was not given, as when a process without the part has a CUDA tensor.
template <typename Table>
const Table& cuda_part() {
  const Table* table = detail::given_table<Table>().load(std::memory_order_acquire);
  if (table == nullptr) detail::throw_no_cuda_part();
  return *table;
}

}  // namespace cp_pool
