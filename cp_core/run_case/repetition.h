// The repetition of a step: whether it gives the results of the step again.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cases/case_report.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/run_case/judged_case.h"
#include "cp_core/verify/expected.h"
#include "cp_core/verify/rank_view.h"

namespace cp_pool {

// What the implementation promises of a step that is taken again.
struct RepeatPromise {
  bool bits = true;  // Implementation::repeats_bits
  bool odd = true;   // Implementation::is_odd
  bool remarks_other_bits = false;
};

// The ranks take each step together, so every rank calls the methods in the order of their declaration. All that is
// passed by reference outlives the Repetition.
class Repetition {
 public:
  // take: takes a step on the shards. Returns its results, with heads in the order of docs/definitions.md.
  // on_results: may change the results of a repeated step before they are compared.
  Repetition(const Case& c, const verify::RankView& view, verify::Shards& shards, RepeatPromise promise,
             std::function<verify::Results()> take, std::function<void(verify::Results&)> on_results)
      : case_(c),
        view_(view),
        shards_(shards),
        promise_(promise),
        take_(std::move(take)),
        on_results_(std::move(on_results)) {}

  // Takes the step again. If the implementation is odd, the inputs are negated, so that what was kept from the first
  // step differs from what is right.
  void run() { again_ = step(promise_.odd); }
  // Compares the repetition with `first`, the results of the first step.
  void compare(const verify::Expected& expected, const verify::Results& first);
  // Collective over `cp`. Whether any rank has found a difference.
  bool differs_anywhere(Communicator& cp, const at::Device& device);
  // Collective over `cp`; for a repetition that differs. Finds out what is wrong: if it may be the sign of the inputs,
  // both steps are taken once more.
  void explain(Communicator& cp, const at::Device& device);

  // What is wrong; the same on every rank.
  [[nodiscard]] RepeatFault fault() const { return fault_; }
  // A sentence for the report if gradients need not repeat their bits and have not, within their bounds; else empty.
  [[nodiscard]] std::string remark() const;
  // The checks that failed on this rank.
  [[nodiscard]] std::vector<Check> failed_checks() const;

 private:
  // How two steps that should be equal differ.
  struct Comparison {
    std::string text;           // the results that differ though they are promised to be equal
    std::vector<Check> beyond;  // gradients beyond their bounds in the second alone, where only bounds are promised
    bool earlier = false;       // whether a row is that of the first step
    bool other_bits = false;    // gradients differ of which only the bounds are promised

    [[nodiscard]] bool equal() const { return text.empty() && beyond.empty(); }
  };

  verify::Results step(bool negated);
  [[nodiscard]] std::vector<Check> gradients_beyond_bounds(const verify::Results& results) const;
  [[nodiscard]] Comparison comparison(const verify::Results& first, const verify::Results& again) const;
  bool depends_on_the_sign();

  const Case& case_;
  const verify::RankView& view_;
  verify::Shards& shards_;
  RepeatPromise promise_;
  std::function<verify::Results()> take_;
  std::function<void(verify::Results&)> on_results_;
  bool negated_ = false;  // whether the shards are
  verify::Results again_;
  const verify::Expected* expected_ = nullptr;
  const verify::Results* first_ = nullptr;
  Comparison found_;
  RepeatFault fault_ = RepeatFault::none;
};

}  // namespace cp_pool
