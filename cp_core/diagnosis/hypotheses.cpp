#include "cp_core/diagnosis/hypotheses.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "cp_core/diagnosis/bench.h"
#include "cp_core/diagnosis/explanation.h"
#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/smaller_case.h"

namespace cp_pool::diagnosis {
namespace {

// XORed into the seed of the case; hardly the seed of any case by itself.
constexpr std::uint64_t kOtherSeed = 0x9E3779B97F4A7C15;

// Fixes the sequence lengths, so that they do not change with the seed.
Case with_lengths(const Case& c, const SequenceLengths& lengths) {
  Case fixed = c;
  if (c.layout != Layout::thd) return fixed;
  fixed.seqlens = lengths.valid_q;
  fixed.seqlens_kv = lengths.valid_kv;
  return fixed;
}

// The same case in fp32, where rounding hides least.
Case sharp_case(const Case& c) {
  Case sharp = c;
  sharp.dtype = DType::fp32;
  return sharp;
}

class Observing {
 public:
  Observing(Questions& questions, const JudgedCase& judged, bool on_rank_0)
      : questions_(questions), judged_(judged), on_rank_0_(on_rank_0) {}

  // Rank 0 learns from why_not() why there is none.
  std::optional<Observed> observe() {
    SizedCase of;
    std::optional<Observed> observed = the_case(of);
    if (observed) take_others(of, *observed);
    return observed;
  }

  // Observes only the case and another seed of it, both in the case's own dtype.
  std::optional<Observed> observe_two_seeds() {
    SizedCase of;
    std::optional<Observed> observed = the_case(of);
    if (!observed || !questions_.has_time_for(of.c)) return std::nullopt;
    of.c.seed ^= kOtherSeed;
    observed->other_seed = questions_.variant(of.c, of.lengths);
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
      if (!questions_.agreed(on_rank_0_ && is_wrong(*first))) {
        return without("a smaller case with the same features is right");
      }
    } else {
      first = questions_.the_case();
    }
    return Observed{.the_case = std::move(*first),
                    .failed_checks = std::move(failed_checks),
                    .repeat_fault = judged_.repeat_fault,
                    .shrunk = shrunk,
                    .takes_windows = takes_windows(of.c)};
  }

  std::nullopt_t without(std::string_view why_no_smaller) {
    why_no_smaller_ = why_no_smaller;
    return std::nullopt;
  }

  bool takes_windows(Case c) {
    constexpr std::int64_t kSomeKeys = 1;
    if (c.window[0] < 0 && c.window[1] < 0) c.window[0] = kSomeKeys;
    return questions_.takes(c);
  }

  static bool is_wrong(const Observation& observation) { return !Bench(observation).failing().empty(); }

  void take_others(const SizedCase& of, Observed& observed) {
    Case again = sharp_case(of.c);
    observed.again = variant_in_time(again, of.lengths);
    if (!observed.again) {
      again = of.c;
      observed.again = variant_in_time(again, of.lengths);
    }
    // An implementation may have other kernels in 16 bits, and only those may be wrong.
    const bool may_be_right = observed.again && again.dtype != of.c.dtype && questions_.has_time_for(of.c);
    if (may_be_right && !questions_.agreed(on_rank_0_ && is_wrong(*observed.again))) {
      observed.right_in_fp32 = true;
      again = of.c;
      observed.again = questions_.variant(again, of.lengths);
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
    if ((!sharp || masked) && questions_.has_time_for(again)) observed.probe = questions_.probe(again, of.lengths);
  }

  std::optional<Observation> variant_in_time(const Case& changed, const SequenceLengths& lengths) {
    if (!questions_.has_time_for(changed)) return std::nullopt;
    return questions_.variant(changed, lengths);
  }

  Questions& questions_;
  const JudgedCase& judged_;
  bool on_rank_0_;
  std::string_view why_no_smaller_;
};

}  // namespace

Hypotheses all_hypotheses(const World& world, const Symptoms& symptoms) {
  Hypotheses all;
  for (const auto& subject :
       {mask_hypotheses, row_hypotheses, ring_hypotheses, merge_hypotheses, scale_hypotheses, head_hypotheses,
        gradient_hypotheses, sink_hypotheses, bias_hypotheses, max_logit_hypotheses, empty_row_hypotheses,
        axis_hypotheses, overflow_hypotheses, precision_hypotheses}) {
    for (Hypothesis& hypothesis : subject(world, symptoms)) all.push_back(std::move(hypothesis));
  }
  return all;
}

Diagnosis explain(Implementation& implementation, const JudgedCase& judged, const LookAtKeys& look,
                  const CpGroups& groups, const Settings& settings) {
  if (settings.on_phase) settings.on_phase("hypotheses");
  Questions questions(implementation, judged, groups, settings);
  const bool on_rank_0 = groups.cp->rank() == 0;
  Observing observing(questions, judged, on_rank_0);
  const std::optional<Observed> observed = observing.observe();
  std::optional<Explainer> explainer;
  if (on_rank_0 && observed) {
    explainer.emplace(*observed, settings);
    explainer->search();
  }
  std::optional<SeenKeys> seen;
  if (questions.agreed(!explainer || explainer->needs_sight())) seen = look();
  if (!on_rank_0) return {};
  Diagnosis diagnosis;
  if (explainer) {
    diagnosis = explainer->answer(seen && !observed->shrunk ? &*seen : nullptr);
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

std::optional<Diagnosis> confirm(Implementation& implementation, const JudgedCase& judged, const CpGroups& groups,
                                 const Settings& settings) {
  Questions questions(implementation, judged, groups, settings);
  const bool on_rank_0 = groups.cp->rank() == 0;
  if (!questions.agreed(!settings.known.empty())) return std::nullopt;
  if (settings.on_phase) settings.on_phase("known mistakes");
  const std::optional<Observed> observed = Observing(questions, judged, on_rank_0).observe_two_seeds();
  if (!observed) return std::nullopt;
  std::optional<Diagnosis> confirmed;
  if (on_rank_0) confirmed = Explainer(*observed, settings).confirmation();
  if (!questions.agreed(confirmed.has_value())) return std::nullopt;
  return on_rank_0 ? confirmed : Diagnosis{};
}

}  // namespace cp_pool::diagnosis
