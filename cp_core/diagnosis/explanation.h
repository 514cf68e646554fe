// Derives the diagnosis from the observations: which mistakes explain all of them.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cases/diagnosis.h"
#include "cp_core/diagnosis/diagnose.h"
#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/hypothesis_check.h"
#include "cp_core/diagnosis/observation.h"
#include "cp_core/diagnosis/seen_keys.h"

namespace cp_pool::diagnosis {

// A hypothesis, and the variant of it that explains the observations.
struct Candidate {
  const Hypothesis* hypothesis = nullptr;
  Attempt attempt;
};

// Tries known mistakes on what was observed.
class Explainer {
 public:
  // Keeps references to both.
  Explainer(const Observed& observed, const Settings& settings);

  // Tries all known mistakes, as far as there is time.
  void search();
  // After search(): whether it helps to know which keys each query saw, because no mistake explains the failure, or one
  // that changes these keys does.
  [[nodiscard]] bool needs_sight() const;
  // After search(). seen: which keys each query saw; null if that is not known.
  Diagnosis answer(const SeenKeys* seen);
  // Instead of search() and answer(): returns the diagnosis that the case fails for a mistake of settings.known, whose
  // ids all explain the case and another seed. It is as certain as that of the known mistake, and only likely if
  // further ids of settings.known explain both. nullopt if there is no such mistake: of ids that are only likely, those
  // that are left may then be told apart.
  std::optional<Diagnosis> confirmation();

 private:
  [[nodiscard]] const HypothesisCheck* first_failing() const;
  std::vector<Candidate> candidates_on(const HypothesisCheck& first, const Hypotheses& library);
  [[nodiscard]] bool explains_others(const Candidate& candidate, const HypothesisCheck& first) const;
  void name_all(const std::vector<Candidate>& candidates, const HypothesisCheck& check);
  void name(const std::vector<Candidate>& candidates, const HypothesisCheck& first, const SeenKeys* seen);
  void add_evidence(const HypothesisCheck& first, bool again);
  void decide(std::string id, Certainty certainty, std::string cause);
  bool is_stale();
  bool went_through_bf16();
  bool is_of_fp8();
  [[nodiscard]] bool differs_alone() const;
  bool is_not_in_the_results();
  [[nodiscard]] std::string not_all_tried() const;
  void only_in_the_repetition();
  void unknown(const HypothesisCheck& first);

  const Observed& observed_;
  const Settings& settings_;
  // When hypotheses are no longer tried.
  std::chrono::steady_clock::time_point end_;
  std::chrono::nanoseconds cpu_end_;
  HypothesisCheck of_case_;
  std::optional<HypothesisCheck> again_;
  std::optional<HypothesisCheck> other_seed_;
  std::optional<HypothesisCheck> probe_;
  Repetition repetition_;
  Hypotheses library_;
  std::vector<Candidate> candidates_;
  bool decided_ = false;  // diagnosis_ is the answer
  bool in_time_ = true;
  std::size_t known_ = 0;  // hypotheses with their variants, tried or not
  std::size_t tried_ = 0;
  Diagnosis diagnosis_;
};

// Returns a duration for --diagnosis-time that is at least this long: "30s".
std::string rounded_up(std::chrono::duration<double> time);

}  // namespace cp_pool::diagnosis
