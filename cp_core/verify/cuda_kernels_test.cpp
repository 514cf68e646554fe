#include "cp_core/verify/cuda_kernels.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include "cp_core/testing/gpu_fixture.h"
#include "cp_core/verify/inputs.h"

namespace cp_pool::verify {
namespace {

class InputsOnGpu : public GpuTest {};

TEST_F(InputsOnGpu, AreTheBitsOfTheCpu) {
  CanonicalProblem problem;
  problem.seqlens_q = problem.seqlens_kv = {1000, 1, 777};
  problem.heads = 8;
  problem.kv_heads = 4;
  problem.head_dim_qk = 96;
  problem.head_dim_v = 64;
  problem.seed = 1234;
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    problem.dtype = dtype;
    problem.score_offset = dtype == DType::fp32 ? 0 : -100;
    const CanonicalInputs on_cpu = make_inputs(problem);
    const CanonicalInputs on_gpu = make_inputs(problem, at::Device(at::kCUDA, 0));
    EXPECT_TRUE(at::equal(on_gpu.q.cpu(), on_cpu.q));
    EXPECT_TRUE(at::equal(on_gpu.k.cpu(), on_cpu.k));
    EXPECT_TRUE(at::equal(on_gpu.v.cpu(), on_cpu.v));
    EXPECT_TRUE(at::equal(on_gpu.dout.cpu(), on_cpu.dout));
  }
}

TEST_F(InputsOnGpu, OfNoElementsAreFilled) {
  at::Tensor none = at::empty({0}, at::kCUDA);
  fill_nearly_normal_cuda(none, 1);
  EXPECT_EQ(none.numel(), 0);
}

}  // namespace
}  // namespace cp_pool::verify
