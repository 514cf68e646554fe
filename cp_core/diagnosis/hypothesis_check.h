// Tests hypotheses against one observation.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cases/diagnosis.h"
#include "cp_core/diagnosis/dense_problem.h"
#include "cp_core/diagnosis/fit.h"
#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/observation.h"
#include "cp_core/diagnosis/simulated_step.h"

namespace cp_pool::diagnosis {

// The variant of a hypothesis that is tried.
struct Attempt {
  enum class Passes { both, forward, backward };

  Passes passes = Passes::both;
  bool from_returned = false;     // SimulatedStep::from_returned
  bool nan_without_keys = false;  // SimulatedStep::nan_without_keys
  bool in_failing_alone = false;  // the results that are right are made without the mistake
  bool on_some_ranks = false;     // shows in the results of the failing ranks only

  bool operator==(const Attempt&) const = default;
};

class HypothesisCheck {
 public:
  // Keeps a reference to the observation.
  explicit HypothesisCheck(const Observation& of);
  HypothesisCheck(const HypothesisCheck&) = delete;
  HypothesisCheck& operator=(const HypothesisCheck&) = delete;
  ~HypothesisCheck() = default;

  [[nodiscard]] const DenseProblem& dense() const { return dense_; }
  [[nodiscard]] const Fits& fits() const { return fits_; }
  // The names of the wrong results; the ranks that have a wrong result.
  [[nodiscard]] const std::vector<std::string>& failing() const { return failing_; }
  [[nodiscard]] bool fails(std::string_view name) const { return std::ranges::find(failing_, name) != failing_.end(); }
  [[nodiscard]] const std::set<std::int64_t>& failing_ranks() const { return failing_ranks_; }
  [[nodiscard]] Symptoms symptoms(bool takes_windows) const;
  // bool [q rows]: whether the row has a wrong out, lse or dq.
  [[nodiscard]] const at::Tensor& wrong_queries() const { return wrong_queries_; }
  [[nodiscard]] bool forward_fails() const { return forward_fails_; }
  // Whether every wrong row of every result holds a NaN.
  [[nodiscard]] bool fails_with_nan_alone() const;
  // Whether the gradients follow from the out and lse that the ranks returned, be these right or wrong.
  [[nodiscard]] bool gradients_follow() const;

  // Applies the hypothesis to the correct model.
  static SimulatedStep changed(const SimulatedStep& right, const Hypothesis& hypothesis, const Attempt& attempt);
  // The variants of a hypothesis that are worth trying, given which results fail.
  [[nodiscard]] std::vector<Attempt> attempts(const Hypothesis& hypothesis) const;
  // Whether the attempt changes a result that fails and leaves the forward alone if that is right.
  [[nodiscard]] bool is_plausible(const Hypothesis& hypothesis, const Attempt& attempt) const;
  // Whether a query sees other keys, or sees a key another number of times, than it should by this hypothesis.
  [[nodiscard]] bool changes_keys(const Hypothesis& hypothesis, const Attempt& attempt) const;
  // Whether the hypothesis predicts every result of every rank within its bounds.
  [[nodiscard]] bool explains(const Hypothesis& hypothesis, const Attempt& attempt) const;

 private:
  static bool has_other_forward(const Hypothesis& hypothesis, const Attempt& attempt);

  [[nodiscard]] at::Tensor are_of_failing(const at::Tensor& row_ranks) const;

  // Some of the rows, on which hypotheses are tried first.
  struct Sample {
    Sample(const DenseProblem& whole, const at::Tensor& some);

    DenseProblem dense;
    SimulatedStep right;
    Forward forward;
    Backward backward;  // empty unless the case trains
    at::Tensor queries;
    at::Tensor keys;                              // undefined unless the case trains
    std::array<std::vector<Given>, 2> rows = {};  // judged: of all ranks, of the failing ranks
  };

  void choose_sample();
  [[nodiscard]] bool may_explain_sample(const Hypothesis& hypothesis, const Attempt& attempt) const;
  [[nodiscard]] bool may_sum_to_sample(const SimulatedStep& model, const Attempt& attempt) const;
  [[nodiscard]] bool plausible_in_sample(const WholeResults& values, const Attempt& attempt) const;
  [[nodiscard]] bool explains_results(const Hypothesis& hypothesis, const Attempt& attempt) const;
  [[nodiscard]] WholeResults of_wrong_ranks(WholeResults wrong, const WholeResults& right) const;
  // Only looks at those of the values that are there.
  [[nodiscard]] bool plausible(const WholeResults& values) const;
  [[nodiscard]] bool fits_one(const Given& given, const WholeResults& values, const WholeResults& sizes) const;
  [[nodiscard]] bool fits_all(const WholeResults& values, const WholeResults& sizes) const;

  DenseProblem dense_;
  Fits fits_;
  SimulatedStep right_;
  Forward forward_;
  Backward backward_;
  WholeResults values_;
  WholeResults magnitudes_;
  std::vector<std::string> failing_;
  std::set<std::int64_t> failing_ranks_;
  at::Tensor wrong_queries_;
  bool forward_fails_ = false;
  bool out_has_nan_ = false;
  std::optional<Sample> sample_;
};

// --- common_ground.cpp: where results are wrong ---

// Names for each wrong result the smallest set of ranks, heads and rows that contains every wrong value, as a sentence
// in which results with the same set stand together: "dk, dv are wrong, on rank 1 only, in heads 0, 2 (every second)".
std::string common_ground(const HypothesisCheck& check);

// Returns one strip for each tensor of each rank that has a wrong row, rank by rank.
std::vector<ErrorStrip> error_strips(const HypothesisCheck& check);

// --- Results of an earlier step ---

// Returns a sentence if the wrong results of the step `other_seed` are those of the step before it, or have those added
// to them; else an empty string. again: the step before.
std::string stale_results(const HypothesisCheck& again, const HypothesisCheck& other_seed);
// Whether a row of a gradient holds the same numbers in both, although their inputs differ, and not only zeros.
bool have_equal_rows(const HypothesisCheck& one, const HypothesisCheck& other);

}  // namespace cp_pool::diagnosis
