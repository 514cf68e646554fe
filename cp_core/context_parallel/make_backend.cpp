#include "cp_core/context_parallel/make_backend.h"

#include <string>

#include <c10/util/Exception.h>

#include "cases/backend_facts.h"
#include "cp_core/attention/cuda_backends.h"
#include "cp_core/attention/math/math_backend.h"
#include "cp_core/cuda/cuda_part.h"

namespace cp_pool {

std::unique_ptr<AttentionBackend> make_backend(Backend backend, const at::Device& device) {
  if (device.is_cuda()) return cuda_part<CudaBackends>().make(backend);
  TORCH_CHECK(device.is_cpu(), "no ", std::string(to_string(backend)), " backend for ", device);
  // On CPU ranks the math backend stands in for the others. If the backend's kernels round the result of each call, the
  // math backend rounds and returns results call by call, so that CPU ranks run the code for such results, too.
  return std::make_unique<MathBackend>(facts_of(backend).rounds_calls ? MathBackend::Results::calls
                                                                      : MathBackend::Results::sums);
}

}  // namespace cp_pool
