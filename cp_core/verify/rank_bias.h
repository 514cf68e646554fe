// The part of a bias that a rank holds, and the check of its gradient. Rows and columns are positions in a sequence, up
// to the largest padded length. In bshd and sbhd a rank holds the rows of its queries in packed order. In thd, and for
// shape 111s, every rank holds the whole bias.
#pragma once

#include <ATen/core/Tensor.h>

#include "cases/case.h"
#include "cases/case_report.h"
#include "cases/lengths.h"
#include "cp_core/verify/check.h"
#include "cp_core/verify/expected.h"
#include "cp_core/verify/rows.h"

namespace cp_pool::verify {

class RankBias {
 public:
  // queries: the query rows of the rank.
  RankBias(const Case& c, const SequenceLengths& lengths, const RankRows& queries, const at::Device& device = at::kCPU);

  // Returns the rank's shard. bias: as in CanonicalInputs. Elements that no sequence uses for a valid query and key
  // hold the padding value of the queries.
  [[nodiscard]] at::Tensor shard(const at::Tensor& bias) const;
  // Checks the gradient. dbias: shaped like the shard.
  [[nodiscard]] Check check(const ExpectedTensor& expected, const at::Tensor& dbias,
                            const CheckRules& rules = {}) const;

 private:
  SequenceLengths lengths_;
  RankRows rows_;
  std::int64_t padded_columns_;
};

}  // namespace cp_pool::verify
