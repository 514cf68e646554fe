// For tests of backends on a GPU: puts the inputs and outputs of one group there, and compares the outputs with fp64.
//
// The bound of each element is error <= c * u * magnitude, where the magnitude is the same sum over absolute values
// (tile_reference.h). For out and the gradients, u is the unit roundoff of the dtype and c = 4, since a library rounds
// p, ds and its result. For lse and max_logit, and for all fp32 results of the math backend, u = 2^-24 and c = 64,
// which allows for sums of about a hundred fp32 terms and for an exp and a log of a few ulp.
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

// Runs tests without autograd, and switches deterministic mode off after each.
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
// The dtype whose rounding results may show: fp32 for the math backend, else the dtype of the inputs.
at::ScalarType precision(const Setting& s);

GroupInputs on_gpu(const GroupInputs& inputs);

// Return tensors for a backend to write to, filled with values that show whether a row was written.
AttentionPartial make_partial(const AttentionOperands& operands);
PackedGradients make_sums(const AttentionOperands& operands);
// Restores the values that make_sums set.
void reset(PackedGradients& sums);

// Runs the forward on each part of the group and merges the partial results in fp64 on the CPU.
AttentionPartial forward_in_parts(AttentionBackend& backend, const GroupCase& c, const AttentionOperands& operands);

// Return what is wrong, with figures; empty if nothing is. `partial` and `sums` must have been made as above.
std::string forward_differences(const GroupCase& c, const GroupExpected& expected, const AttentionPartial& partial,
                                at::ScalarType dtype);
std::string backward_differences(const GroupExpected& expected, const PackedGradients& sums, at::ScalarType dtype);

// For fp32 tensors.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace cp_pool::test
