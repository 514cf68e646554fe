#include <ATen/Context.h>

#include "cp_core/cuda/device.h"
#include "cp_core/run_case/run_case.h"
#include "cp_core/vector_math.h"

namespace cp_pool {
namespace {

constexpr std::uint64_t kSeed = 1234;

}  // namespace

void reset_numeric_state(const at::Device& device) {
  settle_vector_math();
  at::manual_seed(kSeed);
  if (device.is_cuda()) cuda_device().reset(kSeed);
  auto& context = at::globalContext();
  context.setDeterministicAlgorithms(false, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(true);
  context.setDeterministicCuDNN(false);
  context.setBenchmarkCuDNN(false);
  context.setAllowTF32CuDNN(false);
  context.setFloat32MatmulPrecision("highest");  // no TF32 in fp32 products
  c10::set_default_dtype(caffe2::TypeMeta::Make<float>());
}

}  // namespace cp_pool
