#include "cp_core/diagnosis/diagnose.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "cases/case_json.h"
#include "cp_core/diagnosis/explanation.h"
#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/hypothesis_check.h"
#include "cp_core/diagnosis/seen_keys.h"

namespace cp_pool::diagnosis {
namespace {

// XORed into the seed of the case; hardly the seed of any case by itself.
constexpr std::uint64_t kOtherSeed = 0x9E3779B97F4A7C15;

// A time of so many first steps lets a diagnosis ask all that it needs.
constexpr int kStepsOfADiagnosis = 10;

// Fixes the sequence lengths, so that they do not change with the seed.
Case with_lengths(const Case& c, const SequenceLengths& lengths) {
  Case fixed = c;
  if (c.layout != Layout::thd) return fixed;
  fixed.seqlens = lengths.valid_q;
  fixed.seqlens_kv = lengths.valid_kv;
  return fixed;
}

// "quick/gqa/p2p/cp2/bshd/bf16 --set seqlen_q=48 --set heads=4", which `cp-pool submit` takes.
std::string name_of_smaller(const JudgedCase& judged, const Case& smaller) {
  std::string name = judged.id;
  for (const CaseField& field : case_fields()) {
    if (field.write(judged.c) != field.write(smaller)) {
      name += fmt::format(" --set {}={}", field.name, field_text(field, smaller));
    }
  }
  return name;
}

class Observing {
 public:
  explicit Observing(Questions& questions) : questions_(questions) {}

  // Rank 0 learns from why_not() why there is none. two_seeds: observes only the case and another seed of it, both in
  // the case's own dtype.
  std::optional<Observed> observe(bool two_seeds) {
    SizedCase of;
    std::optional<Observed> observed = the_case(of);
    if (!observed) return std::nullopt;
    if (!two_seeds) {
      take_others(of, *observed);
    } else {
      of.c.seed ^= kOtherSeed;
      observed->other_seed = variant_in_time(of.c, of.lengths);
    }
    return observed;
  }

  [[nodiscard]] std::string why_not() const {
    return fmt::format("the case is too large to be simulated, and {}", why_no_smaller_);
  }

 private:
  // Observes the case, or a smaller one if it is too large. of: is set to that case.
  std::optional<Observed> the_case(SizedCase& of) {
    std::vector<std::string> failed_checks = questions_.failed_checks();
    of = {.c = with_lengths(judged_.c, judged_.lengths), .lengths = judged_.lengths};
    std::optional<Observation> first;
    const bool shrunk = !is_small(of.c, of.lengths);
    if (shrunk) {
      auto smaller = smaller_case(judged_.c, judged_.lengths);
      if (!smaller) return without("no smaller case has the same features");
      of = std::move(*smaller);
      if (!questions_.has_time_for(of.c)) return without("there was no time for a smaller case");
      first = questions_.variant(of.c, of.lengths);
      if (!first) return without("the implementation skips a smaller case with the same features");
      if (!questions_.agreed(is_wrong(*first))) return without("a smaller case with the same features is right");
    } else {
      first = questions_.the_case();
    }
    Case windowed = of.c;
    if (of.c.window[0] < 0 && of.c.window[1] < 0) windowed.window[0] = 1;
    return Observed{.of = of,
                    .the_case = std::move(*first),
                    .failed_checks = std::move(failed_checks),
                    .repeat_fault = judged_.repeat_fault,
                    .smaller = shrunk ? name_of_smaller(judged_, of.c) : "",
                    .takes_windows = questions_.takes(windowed)};
  }

  std::nullopt_t without(std::string_view why_no_smaller) {
    why_no_smaller_ = why_no_smaller;
    return std::nullopt;
  }

  [[nodiscard]] bool is_wrong(const Observation& observation) const {
    return questions_.is_rank_0() && !HypothesisCheck(observation).failing().empty();
  }

  void take_others(const SizedCase& of, Observed& observed) {
    Case again = of.c;
    again.fp8.reset();
    if (!questions_.only_own_dtype()) {
      again.dtype = DType::fp32;  // where rounding hides least
      observed.again = variant_in_time(again, of.lengths);
    }
    if (!observed.again) {
      again.dtype = of.c.dtype;
      observed.again = variant_in_time(again, of.lengths);
    }
    // An implementation may have other kernels in 16 bits or in FP8, and only those may be wrong.
    if (observed.again && again != of.c && !questions_.agreed(is_wrong(*observed.again))) {
      observed.right_otherwise =
          fmt::format("in {}{}, all results are right", to_string(again.dtype), of.c.fp8 ? " without FP8" : "");
      again = of.c;
      observed.again = variant_in_time(again, of.lengths);
    }
    if (!observed.again) return;
    Case other = again;
    other.seed ^= kOtherSeed;
    observed.other_seed = variant_in_time(other, of.lengths);
    for (int i = 0; i < 2; ++i) {
      if (auto repeated = variant_in_time(again, of.lengths)) observed.repeated.push_back(std::move(repeated->results));
    }
    // In 16 bits and with large scores, the mask probe shows mistakes that rounding hides elsewhere.
    const bool sharp = again.dtype == DType::fp32 && !verify::canonical_problem(again, of.lengths).has_large_scores();
    const bool masked =
        std::ranges::any_of(observed.failed_checks, [](const std::string& name) { return name.starts_with("mask"); });
    if ((!sharp || masked) && questions_.has_time_for(again))
      observed.probe = questions_.variant(again, of.lengths, /*is_probe=*/true);
  }

  std::optional<Observation> variant_in_time(const Case& changed, const SequenceLengths& lengths) {
    if (!questions_.has_time_for(changed)) return std::nullopt;
    return questions_.variant(changed, lengths);
  }

  Questions& questions_;
  const JudgedCase& judged_ = questions_.judged();
  std::string_view why_no_smaller_;
};

// Finds the mistakes that explain the case and another seed of it. Observes which keys each query saw if none does, or
// if what does changes these keys.
Diagnosis explain(Questions& questions, const Settings& settings) {
  questions.begin("hypotheses");
  const bool on_rank_0 = questions.is_rank_0();
  Observing observing(questions);
  const std::optional<Observed> observed = observing.observe(/*two_seeds=*/false);
  std::optional<Explainer> explainer;
  bool trusts_lse = true;
  if (on_rank_0 && observed) {
    explainer.emplace(*observed, settings);
    explainer->search();
    const auto fails = [&](std::string_view name) {
      return std::ranges::any_of(observed->failed_checks, [&](const auto& check) { return check.ends_with(name); });
    };
    trusts_lse = fails("out") || !fails("lse");
  }
  std::optional<SeenKeys> seen;
  if (questions.agreed(!explainer || explainer->needs_sight())) {
    const JudgedCase& judged = questions.judged();
    SizedCase of = observed ? observed->of : SizedCase{judged.c, judged.lengths};
    of.c.fp8.reset();  // it is too coarse to show single keys
    seen = find_seen_keys(questions, of, trusts_lse);
  }
  if (!on_rank_0) return {};
  Diagnosis diagnosis;
  if (explainer) {
    diagnosis = explainer->answer(seen ? &*seen : nullptr);
  } else {
    diagnosis.cause = observing.why_not();
  }
  if (!seen) return diagnosis;
  if (seen->wrong) {
    diagnosis.pairs = std::move(seen->pairs);
    diagnosis.picture = std::move(seen->picture);
  }
  if (!seen->why_not.empty())
    diagnosis.evidence.push_back("the keys that each query saw are unknown: " + seen->why_not);
  std::ranges::move(seen->notes, std::back_inserter(diagnosis.evidence));
  return diagnosis;
}

// Tries only the mistakes of settings.known, on the case and on another seed (Explainer::confirmation). Whether there
// is an answer is the same on every rank.
std::optional<Diagnosis> confirm(Questions& questions, const Settings& settings) {
  if (!questions.agreed(!settings.known.empty())) return std::nullopt;
  questions.begin("known mistakes");
  const std::optional<Observed> observed = Observing(questions).observe(/*two_seeds=*/true);
  if (!observed) return std::nullopt;
  std::optional<Diagnosis> confirmed;
  if (questions.is_rank_0()) confirmed = Explainer(*observed, settings).confirmation();
  if (!questions.agreed(confirmed.has_value())) return std::nullopt;
  return questions.is_rank_0() ? confirmed : Diagnosis{};
}

}  // namespace

Hypotheses all_hypotheses(const DenseProblem& dense, const Symptoms& symptoms) {
  Hypotheses all;
  for (const auto& subject : {constant_hypotheses, mask_hypotheses, row_hypotheses, ring_hypotheses, merge_hypotheses,
                              head_hypotheses, gradient_hypotheses, softmax_hypotheses, bias_hypotheses,
                              empty_row_hypotheses, axis_hypotheses, precision_hypotheses, replicated_hypotheses}) {
    for (Hypothesis& hypothesis : subject(dense, symptoms)) all.push_back(std::move(hypothesis));
  }
  return all;
}

Diagnosis diagnose(Implementation& implementation, const JudgedCase& judged, const CpGroups& groups,
                   const Settings& settings) {
  Questions questions(implementation, judged, groups, settings);
  if (auto confirmed = confirm(questions, settings)) return std::move(*confirmed);
  const auto start = std::chrono::steady_clock::now();
  Diagnosis diagnosis = explain(questions, settings);
  if (!questions.is_rank_0()) return {};
  if (settings.deadline - start < judged.first_step && settings.limit.count() > 0) {
    diagnosis.evidence.push_back(fmt::format(
        "a step of this case took {:.1f} s at first and {:.1f} s again, so not every question could be asked in "
        "{:g} s; --diagnosis-time {}",
        judged.first_step.count(), judged.repeated_step.count(), std::chrono::duration<double>(settings.limit).count(),
        rounded_up(judged.first_step * kStepsOfADiagnosis)));
  }
  return diagnosis;
}

}  // namespace cp_pool::diagnosis
