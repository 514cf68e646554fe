// Asks what is under test with inputs of one's own, and puts the answers of all ranks together.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
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

// A case whose steps are asked for, and how its inputs are cut.
struct AskedCase {
  Case c;
  verify::RankView view;  // of the case, as the implementation is told it
  verify::RankView grid;  // with the rows of the grid: shards cut by it have codes in padding rows, too
};

class Prober {
 public:
  // All of these outlive it.
  Prober(Implementation& implementation, const JudgedCase& judged, const CpGroups& groups, const Settings& settings);

  [[nodiscard]] const ProbeGrid& grid() const { return grid_; }
  [[nodiscard]] const JudgedCase& judged() const { return judged_; }
  [[nodiscard]] bool is_rank_0() const { return groups_.cp->rank() == 0; }

  // The case without what changes weights other than the mask (a bias, a sink), with so many heads. nullopt if the
  // implementation skips it.
  [[nodiscard]] std::optional<AskedCase> asked_case(std::int64_t heads, std::int64_t kv_heads);
  // With as few heads as the implementation declares for its mask probe.
  [[nodiscard]] std::optional<AskedCase> with_few_heads();

  // Whether the same step of the case promises the same bits in its gradients, too.
  [[nodiscard]] bool promises_bits(const AskedCase& asked) {
    return implementation_.repeats_bits(asked.c, judged_.device);
  }

  // Collective, as all below. Rank 0's answer, on every rank: no decision that changes what is asked next may rest on
  // what one rank alone sees.
  [[nodiscard]] bool agreed(bool here) { return agreed_number(here ? 1 : 0) != 0; }
  [[nodiscard]] std::int64_t agreed_number(std::int64_t here) { return largest_of_all(is_rank_0() ? here : 0); }
  // Whether it is so on any rank.
  [[nodiscard]] bool anywhere(bool here) { return largest_of_all(here ? 1 : 0) != 0; }
  enum class Part { forward, whole };
  // Whether one more step may be begun: the longest of its kind so far would end before the deadline.
  [[nodiscard]] bool has_time(Part part);

  // Takes a step with these inputs, in grid order, and returns the results of all ranks, in grid order and the heads of
  // docs/definitions.md, as fp64 on the CPU. Part::forward calls no backward even if the case trains. Results that some
  // rank does not give, or gives misshapen, are undefined; in padding rows of which nothing is promised they are NaN.
  // Padding::declared: padding rows of inputs hold what the implementation declares.
  enum class Padding { codes, declared };
  [[nodiscard]] verify::Results ask(const AskedCase& asked, const verify::CanonicalInputs& inputs, Part part,
                                    Padding padding = Padding::codes);

  // Inputs of the asked case that are 0, on the device.
  [[nodiscard]] verify::CanonicalInputs zeros(const AskedCase& asked) const;
  // Sets dout to 0 in padding rows, unless the implementation declares that they hold NaN: 0 is what it may rely on.
  void clear_padding(at::Tensor& dout) const;

 private:
  // numbers: not negative, and int32.
  [[nodiscard]] std::int64_t largest_of_all(std::int64_t here);

  Implementation& implementation_;
  const JudgedCase& judged_;
  const CpGroups& groups_;
  const Settings& settings_;
  ProbeGrid grid_;
  verify::Ownership owners_;
  std::array<std::chrono::steady_clock::duration, 2> longest_{};  // by Part
};

// Whether two results are the same, element by element, or both undefined. NaN is like NaN.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace cp_pool::diagnosis
