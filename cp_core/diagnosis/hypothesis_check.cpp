#include "cp_core/diagnosis/hypothesis_check.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cp_pool::diagnosis {
namespace {

using verify::Results;

// How many queries, and how many keys, hypotheses are tried on first.
constexpr std::int64_t kSampleRows = 16;

// Whether the wrong results of the later run are the correct results of the earlier run, or (added) the sum of both
// runs' correct results. Gradients may instead follow from such an out and lse.
bool are_stale(const HypothesisCheck& earlier, const HypothesisCheck& later, bool added) {
  if (later.failing().empty()) return false;
  const bool gradients_follow = later.forward_fails() && later.gradients_follow();
  for (const Given& given : later.fits().given()) {
    if (!later.fails(given.name)) continue;
    if (gradients_follow && !is_of_forward(given.member)) continue;
    const auto before = std::ranges::find(earlier.fits().given(), given.name, &Given::name);
    if (before == earlier.fits().given().end() || !before->right.sizes().equals(given.right.sizes())) return false;
    // A result that is the correct one times a number may, if its numbers are small, look like one to which something
    // was added.
    if (added && constant_of(given)) return false;
    const at::Tensor predicted = added ? given.right.add(before->right) : before->right;
    // The errors of both steps may be in the sum.
    const at::Tensor error = verify::row_rms(given.value.sub(predicted).nan_to_num(1e30, 1e30, -1e30));
    const at::Tensor bound =
        given.baseline.add(before->baseline).mul(verify::kAllowedBaselines).add(given.floor).add(before->floor);
    if (error.masked_fill(given.judged.logical_not().unsqueeze(1), 0.0).gt(bound.mul(2)).any().item<bool>())
      return false;
  }
  return true;
}

}  // namespace

HypothesisCheck::HypothesisCheck(const Observation& of) : dense_(of), fits_(dense_), right_(dense_) {
  forward_ = run_forward(right_);
  values_ = forward_.results;
  const bool training = of.c.training;
  if (training) {
    backward_ = run_backward(right_, forward_);
    sum_gradients(right_, backward_, /*absolute=*/false, values_);
  }
  magnitudes_ = magnitudes(right_, forward_, training ? &backward_ : nullptr);
  wrong_queries_ = at::zeros_like(dense_.q_rows.valid);
  for (const Given& given : fits_.given()) {
    const at::Tensor failed = fits_.errors(given).gt(1.0).any(-1);
    if (!failed.any().item<bool>()) continue;
    failing_.emplace_back(given.name);
    if (is_of_queries(given.member)) wrong_queries_.logical_or_(failed);
    if (is_of_forward(given.member)) forward_fails_ = true;
    if (given.member == &Results::out) out_has_nan_ = given.value.isnan().any().item<bool>();
    for (int rank = 0; rank < dense_.ranks; ++rank) {
      if (failed.logical_and(given.rank.eq(rank)).any().item<bool>()) failing_ranks_.insert(rank);
    }
  }
  choose_sample();
}

Symptoms HypothesisCheck::symptoms(bool takes_windows) const {
  Symptoms out{.failing = failing_, .constants_alone = true, .takes_windows = takes_windows};
  for (const Given& given : fits_.given()) {
    if (!fails(given.name)) continue;
    Given of_wrong_ranks = given;
    of_wrong_ranks.judged = given.judged.logical_and(are_of_failing(given.rank));
    const std::string name(
        std::ranges::find(verify::kResults, given.member, [](auto& one) { return one.second; })->first);
    const auto constant = constant_of(of_wrong_ranks);
    if (constant) out.constants.emplace(name, *constant);  // of the first of its parts; the others are tried
    out.constants_alone = out.constants_alone && constant.has_value();
  }
  return out;
}

HypothesisCheck::Sample::Sample(const DenseProblem& whole, const at::Tensor& some)
    : dense(whole.with_queries(some)), right(dense), forward(run_forward(right)), queries(some) {
  if (dense.c().training) backward = run_backward(right, forward);
}

// Samples half of the rows from those with a wrong result, and half from the others.
void HypothesisCheck::choose_sample() {
  if (dense_.q_rows.count() <= 2 * kSampleRows) return;
  at::Tensor wrong_keys = at::zeros_like(dense_.kv_rows.valid);
  for (const Given& given : fits_.given()) {
    if (is_of_keys(given.member)) wrong_keys.logical_or_(fits_.errors(given).gt(1.0).any(-1));
  }
  const auto chosen = [](const at::Tensor& wrong) {
    return at::cat({evenly(wrong.nonzero().flatten(), kSampleRows / 2),
                    evenly(wrong.logical_not().nonzero().flatten(), kSampleRows / 2)});
  };
  sample_.emplace(dense_, chosen(wrong_queries_));
  if (dense_.c().training) sample_->keys = chosen(wrong_keys);
  for (const bool on_some_ranks : {false, true}) {
    for (const Given& given : fits_.given()) {
      if (!is_of_queries(given.member) && !is_of_keys(given.member)) continue;
      const at::Tensor concerns = on_some_ranks ? are_of_failing(given.rank) : at::ones_like(given.judged);
      sample_->rows.at(on_some_ranks ? 1 : 0)
          .push_back(fits_.of_rows(given, is_of_keys(given.member) ? sample_->keys : sample_->queries, concerns));
    }
  }
}

std::vector<Attempt> HypothesisCheck::attempts(const Hypothesis& hypothesis) const {
  using Passes = Attempt::Passes;
  std::vector<Attempt> all;
  if (forward_fails_ && hypothesis.model && hypothesis.level != Hypothesis::Level::forward) return all;
  // In 16 bits, a mistake in the forward may stay within its bounds and only show in gradients.
  const bool sharp = dense_.c().dtype == DType::fp32;
  const bool training = dense_.c().training;
  if (hypothesis.pass) {
    if (forward_fails_ || !sharp) all.push_back({.passes = Passes::both});
    if ((forward_fails_ || !sharp) && training) all.push_back({.passes = Passes::forward, .from_returned = true});
    if (!forward_fails_ && training) all.push_back({.passes = Passes::backward});
    if (hypothesis.of_mask && out_has_nan_) all.push_back({.nan_without_keys = true});
  } else {
    all.emplace_back();
    if (hypothesis.shows) return all;
    if (hypothesis.model && hypothesis.level == Hypothesis::Level::forward && training) {
      all.push_back({.from_returned = true});
    }
  }
  // A mistake of the backward may be in one gradient alone.
  if (hypothesis.model && hypothesis.level == Hypothesis::Level::backward &&
      !(fails("dq") && fails("dk") && fails("dv"))) {
    all.push_back({.in_failing_alone = true});
  }
  const bool some = !failing_ranks_.empty() && failing_ranks_.size() < static_cast<std::size_t>(dense_.ranks);
  for (std::size_t i = 0, count = all.size(); some && i < count; ++i) {
    all.push_back(all[i]);
    all.back().on_some_ranks = true;
  }
  return all;
}

bool HypothesisCheck::explains(const Hypothesis& hypothesis, const Attempt& attempt) const {
  if (hypothesis.shows) return hypothesis.shows(*this);
  if (hypothesis.results) return explains_results(hypothesis, attempt);
  if (!may_explain_sample(hypothesis, attempt)) return false;
  const SimulatedStep model = changed(right_, hypothesis, attempt);
  const bool changes_forward = has_other_forward(hypothesis, attempt);
  // The backward needs the parts of the forward, even if only the backward handles them wrongly.
  const Forward forward = changes_forward || model.part.defined() ? run_forward(model) : forward_;
  WholeResults values = forward.results;
  if (!attempt.on_some_ranks && !plausible(values)) return false;
  Backward backward;
  const bool training = dense_.c().training;
  if (training) {
    const bool same = hypothesis.model && hypothesis.level == Hypothesis::Level::sums;
    backward = same ? backward_ : run_backward(model, forward);
    sum_by(model, backward, /*absolute=*/false, values);
  }
  if (attempt.in_failing_alone) {
    for (const Given& given : fits_.given()) {
      if (!fails(given.name)) values.*(given.member) = values_.*(given.member);
    }
  }
  if (attempt.on_some_ranks) values = of_wrong_ranks(values, values_);
  return plausible(values) && fits_all(values, magnitudes(model, forward, training ? &backward : nullptr));
}

bool HypothesisCheck::explains_results(const Hypothesis& hypothesis, const Attempt& attempt) const {
  WholeResults values = values_;
  hypothesis.results(dense_, values);
  if (attempt.on_some_ranks) values = of_wrong_ranks(values, values_);
  if (!plausible(values)) return false;
  WholeResults sizes = magnitudes_;
  hypothesis.results(dense_, sizes);
  for (const auto& [name, member] : verify::kResults) {
    if ((sizes.*member).defined()) sizes.*member = (sizes.*member).abs();
  }
  return fits_all(values, sizes);
}

bool HypothesisCheck::has_other_forward(const Hypothesis& hypothesis, const Attempt& attempt) {
  if (hypothesis.pass) return attempt.passes != Attempt::Passes::backward;
  return hypothesis.model && hypothesis.level == Hypothesis::Level::forward;
}

SimulatedStep HypothesisCheck::changed(const SimulatedStep& right, const Hypothesis& hypothesis,
                                       const Attempt& attempt) {
  SimulatedStep model = right;
  if (hypothesis.model) hypothesis.model(model);
  if (hypothesis.pass) {
    Pass pass = right.forward;
    hypothesis.pass(*right.dense, pass);
    if (attempt.passes != Attempt::Passes::backward) model.forward = pass;
    if (attempt.passes != Attempt::Passes::forward) model.backward = std::move(pass);
  }
  model.from_returned = model.from_returned || attempt.from_returned;
  model.nan_without_keys = attempt.nan_without_keys;
  return model;
}

bool HypothesisCheck::may_explain_sample(const Hypothesis& hypothesis, const Attempt& attempt) const {
  if (!sample_) return true;
  if (hypothesis.model && hypothesis.level == Hypothesis::Level::sums) {
    return may_sum_to_sample(changed(right_, hypothesis, attempt), attempt);
  }
  const SimulatedStep model = changed(sample_->right, hypothesis, attempt);
  if (model.returned || model.needs_all_rows) return true;
  const bool other_forward = has_other_forward(hypothesis, attempt);
  const Forward forward = other_forward || model.part.defined() ? run_forward(model) : sample_->forward;
  WholeResults values;
  if (other_forward) {
    values.out = forward.results.out;
    values.lse = forward.results.lse;
    if (!plausible_in_sample(values, attempt)) return false;
  }
  if (!dense_.c().training || model.sums || model.returned_gradients) return true;
  values = {};
  values.dq = sum_dq(model, run_backward(model, forward));
  return plausible_in_sample(values, attempt);
}

// The same for a model that differs only in which pairs count in gradients.
bool HypothesisCheck::may_sum_to_sample(const SimulatedStep& model, const Attempt& attempt) const {
  if (model.landing.defined() || model.sums || model.returned_gradients) return true;
  WholeResults values;
  std::tie(values.dk, values.dv) = sum_dk_dv(model, backward_, sample_->keys);
  const bool by_query = model.weight_dq.defined() && model.weight_dq.size(0) > 1;
  SimulatedStep of_sample = sample_->right;
  of_sample.weight_dq = by_query ? model.weight_dq.index_select(0, sample_->queries) : model.weight_dq;
  of_sample.dq_head = model.dq_head;
  values.dq = sum_dq(of_sample, sample_->backward);
  return plausible_in_sample(values, attempt);
}

bool HypothesisCheck::plausible_in_sample(const WholeResults& values, const Attempt& attempt) const {
  return std::ranges::all_of(sample_->rows.at(attempt.on_some_ranks ? 1 : 0), [&](const Given& given) {
    const at::Tensor& value = values.*(given.member);
    return !value.defined() || (attempt.in_failing_alone && !fails(given.name)) || Fits::plausible(given, value);
  });
}

bool HypothesisCheck::fails_with_nan_alone() const {
  return std::ranges::all_of(fits_.given(), [this](const Given& given) {
    const at::Tensor wrong = fits_.errors(given).gt(1.0);
    return !wrong.logical_and(given.value.isnan().any(-1).logical_not()).any().item<bool>();
  });
}

bool HypothesisCheck::is_plausible(const Hypothesis& hypothesis, const Attempt& attempt) const {
  return !attempt.on_some_ranks && has_other_forward(hypothesis, attempt) == forward_fails_;
}

bool HypothesisCheck::changes_keys(const Hypothesis& hypothesis, const Attempt& attempt) const {
  if (hypothesis.of_mask || hypothesis.shows || hypothesis.results) return hypothesis.of_mask;
  const SimulatedStep model = changed(right_, hypothesis, attempt);
  return !model.forward.times.equal(right_.forward.times) || !model.backward.times.equal(right_.backward.times);
}

bool HypothesisCheck::gradients_follow() const {
  if (!dense_.c().training) return true;
  SimulatedStep model = right_;
  model.from_returned = true;
  Forward forward = forward_;
  for (const Given& given : fits_.given()) {
    if (given.member == &Results::out || given.member == &Results::lse) forward.results.*(given.member) = given.value;
  }
  const Backward backward = run_backward(model, forward);
  WholeResults values;
  sum_by(model, backward, /*absolute=*/false, values);
  const WholeResults sizes = magnitudes(model, forward, &backward);
  return std::ranges::all_of(
      fits_.given(), [&](const Given& given) { return is_of_forward(given.member) || fits_one(given, values, sizes); });
}

WholeResults HypothesisCheck::of_wrong_ranks(WholeResults wrong, const WholeResults& right) const {
  for (const Given& given : fits_.given()) {
    const at::Tensor rows = are_of_failing(given.rank).view({-1, 1, 1});
    if (!(wrong.*(given.member)).defined()) continue;
    wrong.*(given.member) = at::where(rows, wrong.*(given.member), right.*(given.member));
  }
  return wrong;
}

at::Tensor HypothesisCheck::are_of_failing(const at::Tensor& row_ranks) const {
  at::Tensor rows = at::zeros_like(row_ranks, at::kBool);
  for (const std::int64_t rank : failing_ranks_) rows.logical_or_(row_ranks.eq(rank));
  return rows;
}

bool HypothesisCheck::plausible(const WholeResults& values) const {
  return std::ranges::all_of(fits_.given(), [&](const Given& given) {
    return !(values.*(given.member)).defined() || fits_.plausible(given, values.*(given.member));
  });
}

bool HypothesisCheck::fits_all(const WholeResults& values, const WholeResults& sizes) const {
  return std::ranges::all_of(fits_.given(), [&](const Given& given) { return fits_one(given, values, sizes); });
}

bool HypothesisCheck::fits_one(const Given& given, const WholeResults& values, const WholeResults& sizes) const {
  return !fits_.errors(given, values.*(given.member), sizes.*(given.member)).gt(1.0).any().item<bool>();
}

std::string stale_results(const HypothesisCheck& again, const HypothesisCheck& other_seed) {
  const bool added = !are_stale(again, other_seed, /*added=*/false);
  if (added && !are_stale(again, other_seed, /*added=*/true)) return {};
  return fmt::format("a step returns the {} of the previous step{}", fmt::join(other_seed.failing(), ", "),
                     added ? ", added to its own results" : "");
}

bool have_equal_rows(const HypothesisCheck& one, const HypothesisCheck& other) {
  return std::ranges::any_of(one.fits().given(), [&](const Given& given) {
    const auto same = std::ranges::find(other.fits().given(), given.name, &Given::name);
    if (is_of_forward(given.member) || same == other.fits().given().end()) return false;
    if (!same->value.sizes().equals(given.value.sizes())) return false;
    const at::Tensor equal = given.value.eq(same->value).all(-1).logical_and(given.value.ne(0.0).any(-1));
    return equal.logical_and(given.judged.unsqueeze(1)).any().item<bool>();
  });
}

}  // namespace cp_pool::diagnosis
