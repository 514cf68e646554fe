#include "cp_core/diagnosis/explanation.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cp_pool::diagnosis {
namespace {

// A hypothesis in the form in which it explains what was seen.
struct Candidate {
  const Hypothesis* hypothesis = nullptr;
  Attempt attempt;
};

const std::string& id_of(const Candidate& candidate) {
  const Hypothesis& hypothesis = *candidate.hypothesis;
  const bool backward = candidate.attempt.passes == Attempt::Passes::backward;
  return backward && !hypothesis.backward_id.empty() ? hypothesis.backward_id : hypothesis.id;
}

std::string only_on(const std::vector<int>& ranks) {
  return fmt::format("on rank{} {} only", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string sentence_of(const Candidate& candidate, const Bench& bench) {
  const Hypothesis& hypothesis = *candidate.hypothesis;
  const Attempt& attempt = candidate.attempt;
  const bool backward = attempt.passes == Attempt::Passes::backward;
  const bool has_own = backward && !hypothesis.backward_says.empty();
  std::string where;
  if (attempt.passes == Attempt::Passes::forward) where = "in the forward alone, ";
  if (backward && !has_own) where = "in the backward alone, ";
  switch (attempt.who) {
    case Attempt::Who::all:
      where += "on all ranks";
      break;
    case Attempt::Who::queries_of_ranks:
      where += only_on(bench.query_ranks());
      break;
    case Attempt::Who::results_of_ranks:
      where += only_on(bench.failing_ranks());
      break;
  }
  const std::string& says = has_own ? hypothesis.backward_says : hypothesis.says;
  return fmt::format("{}{} {}", says, where.find(',') == std::string::npos ? "" : ",", where);
}

class Explainer {
 public:
  Explainer(const Observed& observed, const SeenKeys* seen, const Settings& settings)
      : observed_(observed), seen_(seen), settings_(settings), of_case_(observed.the_case) {
    if (observed.sharp) sharp_.emplace(*observed.sharp);
    if (observed.other_seed) other_seed_.emplace(*observed.other_seed);
    if (observed.probe) probe_.emplace(*observed.probe);
  }

  Diagnosis answer() {
    diagnosis_.explains = of_case_.failing();
    const Bench* const first = first_failing();
    if (first == nullptr) {
      diagnosis_.cause = "the results that were judged are within their bounds";
      return std::move(diagnosis_);
    }
    library_ = all_hypotheses(first->world());
    const std::vector<Candidate> candidates = candidates_on(*first);
    if (candidates.empty()) {
      unknown();
    } else {
      name(candidates);
    }
    return std::move(diagnosis_);
  }

 private:
  // Where rounding hides least, of those on which something is wrong.
  [[nodiscard]] const Bench* first_failing() const {
    for (const std::optional<Bench>* const bench : {&sharp_, &probe_}) {
      if (*bench && !(*bench)->failing().empty() && bench == &sharp_) return &**bench;
    }
    if (!of_case_.failing().empty()) return &of_case_;
    return probe_ && !probe_->failing().empty() ? &*probe_ : nullptr;
  }

  std::vector<Candidate> candidates_on(const Bench& first) {
    std::vector<Candidate> found;
    for (const Hypothesis& hypothesis : library_) {
      for (const Attempt& attempt : first.attempts(hypothesis)) {
        if (std::chrono::steady_clock::now() > settings_.deadline) {
          in_time_ = false;
          return found;
        }
        const Candidate candidate{.hypothesis = &hypothesis, .attempt = attempt};
        if (!first.explains(hypothesis, attempt)) continue;
        if (explains_others(candidate, first)) found.push_back(candidate);
        break;
      }
    }
    return found;
  }

  [[nodiscard]] bool explains_others(const Candidate& candidate, const Bench& first) const {
    const auto explained = [&](const Bench& bench) {
      return &bench == &first || bench.explains(*candidate.hypothesis, candidate.attempt);
    };
    if (!explained(of_case_)) return false;
    for (const std::optional<Bench>* const bench : {&sharp_, &other_seed_, &probe_}) {
      if (*bench && !explained(**bench)) return false;
    }
    return true;
  }

  void name(const std::vector<Candidate>& candidates) {
    const Bench& bench = *first_failing();
    const Candidate& best = candidates.front();
    diagnosis_.id = id_of(best);
    diagnosis_.cause = sentence_of(best, bench);
    for (const Candidate& candidate : candidates) {
      const std::string& id = id_of(candidate);
      if (id == diagnosis_.id || std::ranges::find(diagnosis_.others, id) != diagnosis_.others.end()) continue;
      diagnosis_.others.push_back(id);
      diagnosis_.evidence.push_back("as well: " + sentence_of(candidate, bench));
    }
    const bool again = other_seed_ && !other_seed_->failing().empty();
    const bool certain = diagnosis_.others.empty() && again && in_time_;
    diagnosis_.certainty = certain ? Certainty::certain : Certainty::likely;
  }

  void unknown() {
    diagnosis_.id = Diagnosis::kUnknown;
    diagnosis_.certainty = Certainty::unknown;
    diagnosis_.explains.clear();
    diagnosis_.cause = "no known mistake explains it";
  }

  const Observed& observed_;
  const SeenKeys* seen_;
  const Settings& settings_;
  Bench of_case_;
  std::optional<Bench> sharp_;
  std::optional<Bench> other_seed_;
  std::optional<Bench> probe_;
  Hypotheses library_;
  bool in_time_ = true;
  Diagnosis diagnosis_;
};

}  // namespace

Diagnosis explanation_of(const Observed& observed, const SeenKeys* seen, const Settings& settings) {
  return Explainer(observed, seen, settings).answer();
}

}  // namespace cp_pool::diagnosis
