// Tries hypotheses on one observation.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cp_core/diagnosis/fit.h"
#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/observation.h"
#include "cp_core/diagnosis/simulation.h"
#include "cp_core/diagnosis/world.h"

namespace cp_pool::diagnosis {

// In which form a hypothesis is tried.
struct Attempt {
  enum class Passes { both, forward, backward };
  // Who is wrong: all ranks, the queries of some, what some get.
  enum class Who { all, queries_of_ranks, results_of_ranks };

  Passes passes = Passes::both;
  bool from_returned = false;  // Model::from_returned
  Who who = Who::all;

  bool operator==(const Attempt&) const = default;
};

class Bench {
 public:
  // Keeps a reference to the observation.
  explicit Bench(const Observation& of);
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() = default;

  [[nodiscard]] const World& world() const { return world_; }
  [[nodiscard]] const Fits& fits() const { return fits_; }
  // Names of the results that are wrong, and the ranks that have a wrong one.
  [[nodiscard]] const std::vector<std::string>& failing() const { return failing_; }
  [[nodiscard]] const std::vector<int>& failing_ranks() const { return failing_ranks_; }
  [[nodiscard]] const std::vector<int>& query_ranks() const { return query_ranks_; }
  [[nodiscard]] bool forward_fails() const { return forward_fails_; }
  [[nodiscard]] bool failing_of(at::Tensor WholeResults::* member) const;
  // Whether gradients are those of the out and lse that were given, right or wrong.
  [[nodiscard]] bool gradients_follow() const;
  // What a rank's own queries give to its own keys: of dq, dk and dv.
  [[nodiscard]] WholeResults own_shares() const;

  // The right model with what a hypothesis changes in it.
  static Model changed(const Model& right, const Hypothesis& hypothesis, const Attempt& attempt);
  // The forms in which a hypothesis may explain what is wrong here.
  [[nodiscard]] std::vector<Attempt> attempts(const Hypothesis& hypothesis) const;
  // Whether it brings every result of every rank within its bounds.
  [[nodiscard]] bool explains(const Hypothesis& hypothesis, const Attempt& attempt) const;

 private:
  static bool has_other_forward(const Hypothesis& hypothesis, const Attempt& attempt);

  static at::Tensor are_of(const at::Tensor& row_ranks, const std::vector<int>& ranks);

  void choose_sample();
  [[nodiscard]] bool may_explain_sample(const Hypothesis& hypothesis, const Attempt& attempt) const;
  [[nodiscard]] bool explains_results(const Hypothesis& hypothesis, const Attempt& attempt) const;
  [[nodiscard]] bool restrict_to(Model& model, const at::Tensor& rows) const;
  [[nodiscard]] WholeResults of_wrong_ranks(WholeResults wrong, const WholeResults& right) const;
  [[nodiscard]] bool plausible(const WholeResults& values, bool forward) const;
  [[nodiscard]] bool fits_all(const WholeResults& values, const WholeResults& sizes) const;

  World world_;
  Fits fits_;
  Model right_;
  Forward forward_;
  Backward backward_;
  WholeResults values_;
  WholeResults magnitudes_;
  std::vector<std::string> failing_;
  std::vector<int> failing_ranks_;
  std::vector<int> query_ranks_;  // those that have a wrong out, lse or dq
  bool forward_fails_ = false;
  std::optional<World> sample_;
  at::Tensor sample_rows_;
};

}  // namespace cp_pool::diagnosis
