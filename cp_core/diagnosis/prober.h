// Runs the implementation under test with chosen inputs and assembles the results of all ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "cases/case.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/diagnosis/diagnose.h"
#include "cp_core/diagnosis/probe_grid.h"
#include "cp_core/trial/implementation.h"
#include "cp_core/trial/judged_case.h"
#include "cp_core/verify/inputs.h"
#include "cp_core/verify/rank_view.h"
#include "cp_core/verify/reference.h"

namespace cp_pool::diagnosis {

// A case whose steps are run, and how its inputs are sharded.
struct AskedCase {
  Case c;
  verify::RankView view;  // the view that the implementation gets
  verify::RankView grid;  // shards every row of the grid, so that padding rows hold codes too
};

class Prober {
 public:
  // All arguments must outlive the Prober.
  Prober(Implementation& implementation, const JudgedCase& judged, const CpGroups& groups, const Settings& settings);

  [[nodiscard]] const ProbeGrid& grid() const { return grid_; }
  [[nodiscard]] const JudgedCase& judged() const { return judged_; }
  [[nodiscard]] bool is_rank_0() const { return groups_.cp->rank() == 0; }

  // Returns the judged case with these heads, and without all but the mask that changes weights (a bias, a sink).
  // nullopt if the implementation skips that case.
  [[nodiscard]] std::optional<AskedCase> asked_case(std::int64_t heads, std::int64_t kv_heads);
  // The same with as few heads as the implementation declares for its mask probe.
  [[nodiscard]] std::optional<AskedCase> with_few_heads();

  // This method and all below are collective. Returns rank 0's argument on every rank: a decision on what to ask next
  // must be the same on all ranks.
  [[nodiscard]] bool agreed(bool here) { return agreed_number(here ? 1 : 0) != 0; }
  [[nodiscard]] std::int64_t agreed_number(std::int64_t here) { return largest_of_all(is_rank_0() ? here : 0); }
  // Whether the argument is true on any rank.
  [[nodiscard]] bool anywhere(bool here) { return largest_of_all(here ? 1 : 0) != 0; }
  // Whether one more step may be begun: one that takes as long as the longest so far would end before the deadline.
  [[nodiscard]] bool has_time();

  // Runs a forward with these inputs, which are in grid order. Returns out and lse of all ranks in grid order, with the
  // heads of docs/definitions.md, as fp64 on the CPU. A result that some rank did not return, or returned in a wrong
  // shape, is undefined. Padding rows are NaN if the implementation promises nothing about them. Padding::codes:
  // padding rows of inputs hold what `inputs` has there; Padding::declared: they hold what the implementation declares.
  enum class Padding { codes, declared };
  [[nodiscard]] verify::Results ask(const AskedCase& asked, const verify::CanonicalInputs& inputs,
                                    Padding padding = Padding::codes);

  // Returns inputs of the asked case that are all 0, on the device.
  [[nodiscard]] verify::CanonicalInputs zeros(const AskedCase& asked) const;

 private:
  // The numbers must not be negative and must fit into int32.
  [[nodiscard]] std::int64_t largest_of_all(std::int64_t here);

  Implementation& implementation_;
  const JudgedCase& judged_;
  const CpGroups& groups_;
  const Settings& settings_;
  ProbeGrid grid_;
  verify::Ownership owners_;
  std::chrono::steady_clock::duration longest_;
};

// Whether two results are equal element by element, or both undefined. NaN equals NaN.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace cp_pool::diagnosis
