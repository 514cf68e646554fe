#include "cp_core/diagnosis/explanation.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cp_core/diagnosis/wrong_pairs.h"

namespace cp_pool::diagnosis {
namespace {

// Whether the mistake concerns particular heads. The mask probe may have fewer heads than the case, and then cannot
// refute such a mistake.
bool goes_by_heads(const Hypothesis& hypothesis) {
  constexpr std::array<std::string_view, 6> kIds{"heads_exchanged",         "kv_heads_interleaved", "kv_head_repeated",
                                                 "backward_heads_repeated", "axes_exchanged",       "strides_ignored"};
  return std::ranges::find(kIds, hypothesis.id) != kIds.end();
}

// Whether the id describes the effect of a mistake (wrong keys, errors as of rounding) and not the mistake itself.
bool names_an_effect(std::string_view id) {
  return id == "wrong_keys_seen" || id == "precision_alone";
}

// Whether every query was observed to see exactly its keys.
bool saw_all_rightly(const SeenKeys* seen) {
  if (seen == nullptr || !seen->why_not.empty() || seen->wrong || seen->heads_differ || !seen->whole_numbers)
    return false;
  const at::Tensor unread = seen->times.isnan().any(1).logical_and(seen->expected.gt(0.0).any(1));
  return !unread.any().item<bool>();
}

// One part in kOfSight of the time is for observing which keys each query saw.
constexpr int kOfSight = 4;

// Returns the CPU time that this thread has used.
std::chrono::nanoseconds cpu_time() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

const std::string& id_of(const Candidate& candidate) {
  const Hypothesis& hypothesis = *candidate.hypothesis;
  const bool backward = candidate.attempt.passes == Attempt::Passes::backward;
  return backward && !hypothesis.backward_id.empty() ? hypothesis.backward_id : hypothesis.id;
}

std::string sentence_of(const Candidate& candidate, const HypothesisCheck& check) {
  const Hypothesis& hypothesis = *candidate.hypothesis;
  const auto passes = candidate.attempt.passes;
  std::string says = hypothesis.says;
  if (passes == Attempt::Passes::forward) says = "in the forward only, " + says;
  if (passes == Attempt::Passes::backward) says = "in the backward only, " + says;
  if (candidate.attempt.in_failing_alone) {
    says += fmt::format(", but for {} alone", fmt::join(check.failing(), " and "));
  }
  if (hypothesis.shows || check.dense().ranks == 1) return says;
  if (!candidate.attempt.on_some_ranks) return says + " on all ranks";
  return fmt::format("{} on {} only", says, named_numbers("rank", check.failing_ranks()));
}

// A NaN in padding reaches every query that reads it, even with weight 0. So NaN alone does not show which keys a
// query saw; the steps without NaN, in which the keys were observed, do.
bool rests_on_nan(const Candidate& candidate, const HypothesisCheck& first) {
  return first.fails_with_nan_alone() && first.changes_keys(*candidate.hypothesis, candidate.attempt);
}

}  // namespace

Explainer::Explainer(const Observed& observed, const Settings& settings)
    : observed_(observed),
      settings_(settings),
      end_(settings.deadline),
      cpu_end_(settings.cpu_limit),
      of_case_(observed.the_case),
      repetition_(repetition_of(observed)) {
  if (cpu_end_ != std::chrono::nanoseconds::max()) cpu_end_ += cpu_time();
  if (observed.again) again_.emplace(*observed.again);
  if (observed.other_seed) other_seed_.emplace(*observed.other_seed);
  if (observed.probe) probe_.emplace(*observed.probe);
  diagnosis_.explains = of_case_.failing();
  diagnosis_.strips = error_strips(of_case_);
}

void Explainer::search() {
  decided_ = is_stale() || went_through_bf16() || is_of_fp8() || is_not_in_the_results();
  if (decided_) return;
  const HypothesisCheck* const first = first_failing();
  library_ = all_hypotheses(first->dense(), first->symptoms(observed_.takes_windows));
  const auto for_sight = (end_ - std::chrono::steady_clock::now()) / kOfSight;
  const auto cpu_for_sight = (cpu_end_ - cpu_time()) / kOfSight;
  end_ -= for_sight;
  cpu_end_ -= cpu_for_sight;
  candidates_ = candidates_on(*first, library_);
  end_ += for_sight;
  cpu_end_ += cpu_for_sight;
}

bool Explainer::needs_sight() const {
  if (decided_) return !differs_alone() && diagnosis_.certainty == Certainty::unknown;
  return candidates_.empty() || std::ranges::any_of(candidates_, [this](const Candidate& one) {
           return first_failing()->changes_keys(*one.hypothesis, one.attempt);
         });
}

Diagnosis Explainer::answer(const SeenKeys* seen) {
  if (decided_) return std::move(diagnosis_);
  const HypothesisCheck& first = *first_failing();
  if (saw_all_rightly(seen)) {
    std::erase_if(candidates_, [&](const Candidate& one) {
      return one.attempt.passes != Attempt::Passes::backward && rests_on_nan(one, first);
    });
  }
  Hypotheses of_seen;
  if (candidates_.empty() && seen != nullptr) {
    of_seen = seen_keys_hypotheses(*seen, first.wrong_queries());
    candidates_ = candidates_on(first, of_seen);
  }
  if (candidates_.empty()) {
    unknown(first);
    const bool reads_nan = first.dense().observation->sharding.padding == verify::PaddingFill::nan;
    if (reads_nan && first.fails_with_nan_alone() && saw_all_rightly(seen)) {
      diagnosis_.evidence.emplace_back(
          "each query saw its keys and no others, but every wrong row holds a NaN: padding is read, with weight 0");
    }
  } else {
    name(candidates_, first, seen);
  }
  return std::move(diagnosis_);
}

std::optional<Diagnosis> Explainer::confirmation() {
  const bool fails_twice = !of_case_.failing().empty() && other_seed_ && !other_seed_->failing().empty();
  if (!fails_twice || observed_.repeat_fault != RepeatFault::none) return std::nullopt;
  std::set<std::string> known;
  for (const KnownMistake& one : settings_.known) known.insert(one.ids.begin(), one.ids.end());
  std::erase_if(known, names_an_effect);
  const auto is_known = [&](const std::string& id) { return known.contains(id); };
  library_ = all_hypotheses(of_case_.dense(), of_case_.symptoms(observed_.takes_windows));
  std::erase_if(library_, [&](const Hypothesis& one) { return !is_known(one.id) && !is_known(one.backward_id); });
  std::vector<Candidate> candidates = candidates_on(of_case_, library_);
  std::erase_if(candidates, [&](const Candidate& one) { return !is_known(id_of(one)); });
  const auto candidate_of = [&](const std::string& id) { return std::ranges::find(candidates, id, id_of); };
  const auto fits = [&](const std::string& id) { return candidate_of(id) != candidates.end(); };
  const auto same = std::ranges::find_if(settings_.known,
                                         [&](const KnownMistake& one) { return std::ranges::all_of(one.ids, fits); });
  if (same == settings_.known.end() || !in_time_) return std::nullopt;
  const Candidate& best = *candidate_of(same->ids.front());
  if (rests_on_nan(best, of_case_)) return std::nullopt;
  diagnosis_.certainty = candidates.size() == 1 ? same->certainty : Certainty::likely;
  std::ranges::stable_partition(candidates, [&](const Candidate& one) { return id_of(one) == same->ids.front(); });
  name_all(candidates, of_case_);
  diagnosis_.evidence.push_back(
      fmt::format("this mistake was found in {}. It also explains all results of all ranks of this case within their "
                  "bounds, and those of another seed; no other mistake was tried",
                  same->case_id));
  return std::move(diagnosis_);
}

// The failing observation in which rounding hides least.
const HypothesisCheck* Explainer::first_failing() const {
  if (again_ && !again_->failing().empty()) return &*again_;
  if (!of_case_.failing().empty()) return &of_case_;
  return probe_ && !probe_->failing().empty() ? &*probe_ : nullptr;
}

// Returns a candidate for each id that explains the observations.
std::vector<Candidate> Explainer::candidates_on(const HypothesisCheck& first, const Hypotheses& library) {
  std::vector<Candidate> all;
  for (const Hypothesis& hypothesis : library) {
    for (const Attempt& attempt : first.attempts(hypothesis)) {
      all.push_back({.hypothesis = &hypothesis, .attempt = attempt});
    }
  }
  std::ranges::stable_sort(all, {}, [&](const Candidate& one) {
    if (one.hypothesis->shows) return 0;
    if (!first.is_plausible(*one.hypothesis, one.attempt)) return 3;
    // If only gradients are wrong, a mistake in them is more plausible than another one that only the backward makes.
    return one.attempt.passes == Attempt::Passes::backward ? 2 : 1;
  });
  known_ += all.size();
  std::vector<Candidate> found;
  for (const Candidate& candidate : all) {
    if (std::ranges::find(found, id_of(candidate), id_of) != found.end()) continue;
    if (std::chrono::steady_clock::now() > end_ || cpu_time() > cpu_end_) {
      in_time_ = false;
      return found;
    }
    ++tried_;
    if (!first.explains(*candidate.hypothesis, candidate.attempt)) continue;
    if (explains_others(candidate, first)) found.push_back(candidate);
  }
  return found;
}

bool Explainer::explains_others(const Candidate& candidate, const HypothesisCheck& first) const {
  const Hypothesis& hypothesis = *candidate.hypothesis;
  for (const HypothesisCheck* const check :
       {&of_case_, again_ ? &*again_ : &first, other_seed_ ? &*other_seed_ : &first, probe_ ? &*probe_ : &first}) {
    const auto heads_of = [](const Case& c) { return std::tuple(c.heads, c.kv_heads, c.head_dim_qk, c.head_dim_v); };
    if (goes_by_heads(hypothesis) && heads_of(check->dense().c()) != heads_of(first.dense().c())) continue;
    // A mistake that is recognised by its wrong rows is not refuted by a run without wrong rows: the mask probe, for
    // example, has no sink and no scores that overflow.
    if (hypothesis.shows && check->failing().empty()) continue;
    if (check != &first && !check->explains(hypothesis, candidate.attempt)) return false;
  }
  return true;
}

// Names the first of the candidates, whose ids differ, as the mistake and the rest as others.
void Explainer::name_all(const std::vector<Candidate>& candidates, const HypothesisCheck& check) {
  diagnosis_.id = id_of(candidates.front());
  diagnosis_.cause = sentence_of(candidates.front(), check);
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    diagnosis_.others.push_back(id_of(candidates[i]));
    diagnosis_.evidence.push_back(fmt::format("or: {}", sentence_of(candidates[i], check)));
  }
}

void Explainer::name(const std::vector<Candidate>& candidates, const HypothesisCheck& first, const SeenKeys* seen) {
  const Candidate& best = candidates.front();
  name_all(candidates, first);
  const auto has_chunks_of_a_row = [](const Side& side) { return side.place_in_half.max().item<std::int64_t>() == 0; };
  const bool one_row = has_chunks_of_a_row(first.dense().q_rows) || has_chunks_of_a_row(first.dense().kv_rows);
  if (best.hypothesis->of_mask && first.dense().ranks > 1 && one_row && diagnosis_.id != "wrong_keys_seen") {
    diagnosis_.others.emplace_back("wrong_keys_seen");
    diagnosis_.evidence.emplace_back(
        "or: a mistake at the borders of chunks, which looks the same, since each chunk of a rank has one row");
  }
  const bool again = other_seed_ && !other_seed_->failing().empty();
  const bool is_sight = seen != nullptr && seen->wrong && best.attempt.passes != Attempt::Passes::backward;
  const bool by_nan_alone = rests_on_nan(best, first) && !is_sight;
  const bool certain = !names_an_effect(diagnosis_.id) && diagnosis_.others.empty() && again && in_time_ &&
                       repetition_.same_bits && !by_nan_alone;
  diagnosis_.certainty = certain ? Certainty::certain : Certainty::likely;
  if (by_nan_alone) {
    diagnosis_.evidence.emplace_back(
        "every wrong row holds a NaN, which also reaches queries that read a key with weight 0");
  }
  add_evidence(first, again);
}

void Explainer::add_evidence(const HypothesisCheck& first, bool again) {
  const std::string seeds = again         ? ", and those of another seed"
                            : other_seed_ ? "; with another seed, all results are right"
                                          : "; another seed was not tried";
  const std::string others = !in_time_                   ? not_all_tried()
                             : diagnosis_.others.empty() ? fmt::format("none of {} other hypotheses does", tried_ - 1)
                                                         : fmt::format("{} hypotheses were tried", tried_);
  diagnosis_.evidence.push_back(
      fmt::format("this explains all results of all ranks within their bounds{}; {}", seeds, others));
  std::vector<std::string> where;
  if (!repetition_.same_bits) where.push_back(repetition_.says);
  if (!observed_.right_otherwise.empty()) where.push_back(observed_.right_otherwise);
  if (probe_ && &first == &*probe_) where.emplace_back("it was found on the mask probe");
  if (!observed_.smaller.empty()) where.push_back("seen on the smaller case " + observed_.smaller);
  if (first.dense().c().dtype != observed_.the_case.c.dtype) where.emplace_back("it was found on the case in fp32");
  if (!where.empty()) diagnosis_.evidence.push_back(fmt::format("{}", fmt::join(where, "; ")));
}

void Explainer::decide(std::string id, Certainty certainty, std::string cause) {
  diagnosis_.id = std::move(id);
  diagnosis_.certainty = certainty;
  diagnosis_.cause = std::move(cause);
}

bool Explainer::is_stale() {
  // In FP8, other results may be within the bounds, too.
  if (!again_ || !other_seed_ || again_->dense().c().fp8) return false;
  const std::string says = stale_results(*again_, *other_seed_);
  if (says.empty()) return false;
  decide("stale_buffer", Certainty::certain, says);
  diagnosis_.evidence.emplace_back("a run with another seed returned the right results of the run before it");
  if (diagnosis_.explains.empty()) diagnosis_.explains = other_seed_->failing();
  return true;
}

// FP8 alone is wrong, and checks that only FP8 has say how.
bool Explainer::is_of_fp8() {
  std::vector<std::string> told = observed_.failed_checks;
  std::erase_if(told, [](const std::string& one) { return one != "weights" && one.find(" of ") == std::string::npos; });
  if (observed_.right_otherwise.empty() || told.empty()) return false;
  const bool lost = told.front() == "weights";
  decide(lost ? "fp8_weights_lost" : "fp8_scale_of_rank", Certainty::certain,
         lost ? "small probabilities underflow in FP8: out lacks their weight, which lse counts"
              : "FP8 numbers are not scaled by the largest magnitude of all ranks: " +
                    fmt::format("{}", fmt::join(told, ", ")));
  diagnosis_.evidence.push_back(observed_.right_otherwise);
  return true;
}

// The judged results are within their bounds, but some that failed are bf16 numbers, though the case is fp16.
bool Explainer::went_through_bf16() {
  if (observed_.of.c.dtype != DType::fp16 || !of_case_.failing().empty()) return false;
  std::vector<std::string> names;
  for (const auto& [name, member] : verify::kResults) {
    if (std::ranges::find(observed_.failed_checks, name) == observed_.failed_checks.end()) continue;
    const at::Tensor rows = joined_rows(observed_.the_case.results, member);
    if (rows.defined() && same_bits(rows, rows.to(at::kBFloat16).to(at::kDouble))) names.emplace_back(name);
  }
  if (names.empty()) return false;
  decide(
      "fp16_through_bf16", Certainty::certain,
      fmt::format("every value of {} is a bf16 number: fp16 was converted to bf16 and back", fmt::join(names, ", ")));
  diagnosis_.explains = std::move(names);
  if (!repetition_.same_bits) diagnosis_.evidence.push_back(repetition_.says);
  return true;
}

// The judged results are correct, and only the repetition of the same step differs.
bool Explainer::differs_alone() const {
  return of_case_.failing().empty() && !observed_.failed_checks.empty() &&
         std::ranges::all_of(observed_.failed_checks,
                             [](const std::string& name) { return name.starts_with("repeat"); });
}

bool Explainer::is_not_in_the_results() {
  if (differs_alone()) only_in_the_repetition();
  if (differs_alone() || first_failing() != nullptr) return differs_alone();
  diagnosis_.cause = observed_.failed_checks.empty()
                         ? "all judged results are within their bounds"
                         : fmt::format("{} failed, and all judged results are within their bounds",
                                       fmt::join(observed_.failed_checks, ", "));
  if (!repetition_.same_bits) diagnosis_.evidence.push_back(repetition_.says);
  return true;
}

// "139 of 520 hypotheses tried; --diagnosis-time 60s": a time of about twice what all need, rounded up. If none was
// tried, their time is not known, and they get several times the limit.
std::string Explainer::not_all_tried() const {
  constexpr std::size_t kTimesTheLimit = 5;
  std::string text = fmt::format("{} of {} hypotheses tried", tried_, known_);
  if (settings_.limit.count() == 0) return text;
  const std::size_t times = tried_ == 0 ? kTimesTheLimit : 1 + known_ / tried_;
  return fmt::format("{}; --diagnosis-time {}", text, rounded_up(settings_.limit * 2 * static_cast<int>(times)));
}

void Explainer::only_in_the_repetition() {
  diagnosis_.explains = observed_.failed_checks;
  diagnosis_.evidence.push_back(repetition_.says);
  if (observed_.repeat_fault == RepeatFault::sign) {
    decide("depends_on_sign", Certainty::certain,
           "the results are right within their bounds, but with q, k, v and dout negated they are not exactly negated");
  } else if (observed_.repeat_fault == RepeatFault::earlier_state && again_ && other_seed_ &&
             have_equal_rows(*again_, *other_seed_)) {
    diagnosis_.cause =
        "the results are right within their bounds, but some rows of gradients hold the same numbers for "
        "every seed";
  } else if (observed_.repeat_fault == RepeatFault::earlier_state) {
    decide("stale_buffer", Certainty::likely,
           "the repeated step returns results of the first step, although q, k, v and dout were negated");
  } else {
    decide("not_repeatable", repetition_.same_bits ? Certainty::likely : Certainty::certain,
           "the results are right within their bounds, but the same step gave different results the second time");
  }
}

void Explainer::unknown(const HypothesisCheck& first) {
  diagnosis_.explains.clear();
  const HypothesisCheck& wrong = of_case_.failing().empty() ? first : of_case_;
  const std::string ground = common_ground(wrong);
  const std::chrono::duration<double> limit = settings_.limit;
  diagnosis_.cause = in_time_ ? fmt::format("none of {} known mistakes explains the failure: {}", tried_, ground)
                              : fmt::format("not found in {:g} s: {}; {}", limit.count(), not_all_tried(), ground);
  if (!repetition_.same_bits) diagnosis_.cause += fmt::format("; {}", repetition_.says);
  if (!observed_.right_otherwise.empty()) diagnosis_.evidence.push_back(observed_.right_otherwise);
  if (!observed_.smaller.empty()) diagnosis_.evidence.push_back("seen on the smaller case " + observed_.smaller);
  if (again_ && again_->failing().empty() && !of_case_.failing().empty())
    diagnosis_.evidence.emplace_back("when the case was run again, all results were right");
}

std::string rounded_up(std::chrono::duration<double> time) {
  using std::chrono::seconds;
  constexpr std::array kRound{seconds{10}, seconds{30}, seconds{60}, seconds{120}, seconds{300}, seconds{600}};
  const auto needed = std::chrono::ceil<seconds>(time);
  const auto* const enough = std::ranges::find_if(kRound, [&](seconds round) { return round >= needed; });
  return fmt::format("{}s", (enough == kRound.end() ? needed : *enough).count());
}

}  // namespace cp_pool::diagnosis
