// For tests of backends on a GPU: inputs and outputs of one group there, and how far they are from fp64.
//
// Bounds, for each element: error <= c * u * magnitude, where the magnitude is the number's sum with absolute values
// (tile_reference.h). u is the unit roundoff of the dtype for out and the gradients, with c = 4: a library rounds p, ds
// and its result. For lse and max_logit, and for everything that the math backend gives in fp32, u = 2^-24 and c = 64:
// sums of some hundred fp32 terms, and an exp and log of a few ulp.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "cases/case.h"
#include "cp_core/testing/gpu_fixture.h"
#include "cp_core/testing/tile_reference.h"

namespace cp_pool::test {

inline const TileShape kGqa{.name = "gqa", .heads = 8, .kv_heads = 2, .head_dim_qk = 128, .head_dim_v = 128};

// Without gradients; leaves deterministic mode.
class GpuBackendTest : public GpuTest {
 protected:
  void TearDown() override;

 private:
  at::NoGradGuard no_grad_;
};

struct Setting {
  Backend backend = Backend::math;
  at::ScalarType dtype = at::kBFloat16;
  TileShape shape;
  GroupCase c;
};

std::string setting_name(const Setting& s);
void PrintTo(const Setting& s, std::ostream* stream);  // NOLINT(readability-identifier-naming): GoogleTest's name
// The dtype whose rounding the answers may show: the math backend computes in fp32.
at::ScalarType precision(const Setting& s);

GroupInputs on_gpu(const GroupInputs& inputs);

// What a backend writes to, with values in it that tell whether a row was touched.
AttentionPartial make_partial(const AttentionOperands& operands);
AttentionGradientSums make_sums(const AttentionOperands& operands);
// Makes them again as make_sums gave them.
void reset(AttentionGradientSums& sums);

// Runs the forward on each part of the group and merges what the parts give, in fp64 on the CPU.
AttentionPartial forward_in_parts(AttentionBackend& backend, const GroupCase& c, const AttentionOperands& operands);

// What is wrong, with figures; empty if nothing is. `partial` and `sums` began as above.
std::string forward_differences(const GroupCase& c, const GroupExpected& expected, const AttentionPartial& partial,
                                at::ScalarType dtype);
std::string backward_differences(const GroupExpected& expected, const AttentionGradientSums& sums,
                                 at::ScalarType dtype);

// fp32 tensors.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace cp_pool::test
