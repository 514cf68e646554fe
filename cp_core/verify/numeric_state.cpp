#include <ATen/Context.h>

#include "cp_core/verify/run_case.h"

namespace cp_pool {

void reset_numeric_state() {
  at::manual_seed(1234);
  auto& context = at::globalContext();
  context.setDeterministicAlgorithms(false, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(true);
  context.setDeterministicCuDNN(false);
  context.setBenchmarkCuDNN(false);
  context.setFloat32MatmulPrecision("highest");
  c10::set_default_dtype(caffe2::TypeMeta::Make<float>());
}

}  // namespace cp_pool
