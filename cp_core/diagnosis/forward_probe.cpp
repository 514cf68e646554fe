#include "cp_core/diagnosis/forward_probe.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>

#include "cp_core/verify/canonical.h"

namespace cp_pool::diagnosis {
namespace {

using verify::CanonicalInputs;
using verify::Results;

// The value of all elements of K. No mean of rows of V is negative, so if K is read in place of V the output cannot be
// mistaken for a set of keys.
constexpr double kNoValue = -1;

CanonicalInputs forward_inputs(const Prober& prober, const AskedCase& asked) {
  CanonicalInputs inputs = prober.zeros(asked);
  inputs.k.fill_(kNoValue);
  return inputs;
}

// Sets the codes of the keys from `first` on, the same in every head: key first + s has 1 in element s. Returns how
// many keys have a code.
std::int64_t set_one_hot(at::Tensor& v, std::int64_t first) {
  const std::int64_t count = std::min(v.size(2), v.size(0) - first);
  v.zero_();
  for (std::int64_t s = 0; s < count; ++s) v.select(0, first + s).select(1, s).fill_(1);
  return count;
}

// Collects the weights that heads give to keys, and their lse.
class WeightProbe {
 public:
  WeightProbe(Prober& prober, const AskedCase& asked, bool trusts_lse)
      : prober_(prober),
        asked_(asked),
        trusts_lse_(trusts_lse),
        keys_(prober.grid().kv.size()),
        tolerance_(weight_tolerance(asked.c.dtype, asked.c.cp_size)),
        weights_(at::zeros({asked.c.heads, prober.grid().q.size(), keys_}, at::kFloat)) {}

  // Returns why nothing can be read, as a sentence; empty if something can.
  std::string ask() {
    constexpr const char* kDrifts =
        "the same step gave different bits when it was repeated, so its results cannot be combined with those of other "
        "steps";
    CanonicalInputs inputs = forward_inputs(prober_, asked_);
    Results first;
    while (keys_asked_ < keys_ && prober_.has_time()) {
      const std::int64_t count = set_one_hot(inputs.v, keys_asked_);
      const Results results = prober_.ask(asked_, inputs);
      if (!results.out.defined()) return "a rank returned no out, or an out of the wrong shape";
      if (keys_asked_ == 0) {
        if (!repeats(inputs, results)) return kDrifts;
        if (results.lse.defined()) lse_ = results.lse.squeeze(2);
        first = results;
      }
      weights_.narrow(2, keys_asked_, count).copy_(results.out.narrow(2, 0, count).transpose(0, 1));
      keys_asked_ += count;
    }
    if (keys_asked_ == 0) return "there was no time for a step";
    // The second step repeated the first one, but a later one may not.
    if (keys_asked_ > set_one_hot(inputs.v, 0) && !repeats(inputs, first)) return kDrifts;
    return {};
  }

  // Returns what each class of heads saw.
  [[nodiscard]] std::vector<Sight> sights() const {
    std::vector<Sight> sights;
    for (const std::vector<std::int64_t>& heads : classes()) sights.push_back(sight_of(heads));
    return sights;
  }

  [[nodiscard]] bool has_lse() const { return lse_.defined(); }
  [[nodiscard]] std::int64_t keys_asked() const { return keys_asked_; }

 private:
  bool repeats(const CanonicalInputs& inputs, const Results& results) {
    const Results again = prober_.ask(asked_, inputs);
    return prober_.agreed(same_bits(results.out, again.out) && same_bits(results.lse, again.lse));
  }

  // Returns the heads with equal weights and lse, class by class; head 0 is in the first one.
  [[nodiscard]] std::vector<std::vector<std::int64_t>> classes() const {
    std::vector<std::vector<std::int64_t>> all;
    for (std::int64_t head = 0; head < asked_.c.heads; ++head) {
      const auto same = std::ranges::find_if(all, [&](const auto& heads) {
        const std::int64_t other = heads.front();
        return alike(weights_[other], weights_[head]) &&
               (!has_lse() || alike(lse_.select(1, other).exp(), lse_.select(1, head).exp()));
      });
      if (same == all.end()) {
        all.push_back({head});
      } else {
        same->push_back(head);
      }
    }
    return all;
  }

  // NaN equals NaN, and infinities equal themselves.
  [[nodiscard]] bool alike(const at::Tensor& a, const at::Tensor& b) const {
    const at::Tensor close = a.sub(b).abs().le(at::maximum(a.abs(), b.abs()).mul(tolerance_ / 2));
    return close.logical_or(a.eq(b)).logical_or(a.isnan().logical_and(b.isnan())).all().item<bool>();
  }

  // Padding queries are read only if the implementation promises something about them.
  [[nodiscard]] bool is_read(std::int64_t query) const {
    return !prober_.grid().q.row(query).padding || prober_.judged().sharding.judges_padding;
  }

  [[nodiscard]] Sight sight_of(const std::vector<std::int64_t>& heads) const {
    const std::int64_t queries = prober_.grid().q.size();
    Sight sight{.heads = heads,
                .times = at::full({queries, keys_}, std::numeric_limits<double>::quiet_NaN(), at::kDouble),
                .rows = {}};
    const at::Tensor lse = has_lse() ? lse_.select(1, heads.front()).contiguous() : at::Tensor();
    const at::Tensor of_head = weights_[heads.front()];
    const auto* const weights = of_head.const_data_ptr<float>();
    auto* const times = sight.times.mutable_data_ptr<double>();
    const auto asked = static_cast<std::size_t>(keys_asked_);
    for (std::int64_t i = 0; i < queries; ++i) {
      RowReading& row = sight.rows.emplace_back();
      if (!is_read(i)) continue;
      std::optional<double> of_row;
      if (lse.defined()) of_row = lse.const_data_ptr<double>()[i];
      row = read_row(std::span(weights + i * keys_, asked), of_row, keys_asked_ == keys_, tolerance_,
                     std::span(times + i * keys_, asked));
    }
    distrust_lse(sight, trusts_lse_);
    return sight;
  }

  // Only lse can show that a query saw all of its keys several times. It is believed only if it is trusted at all, and
  // proved right for another query and wrong for none: an lse in another base, for example, may give a whole number of
  // keys by chance.
  static void distrust_lse(Sight& sight, bool trusts_lse) {
    const auto times_of = [&](std::size_t i) { return sight.times.select(0, static_cast<std::int64_t>(i)); };
    bool is_right = false;
    bool is_wrong = !trusts_lse;
    for (std::size_t i = 0; i < sight.rows.size(); ++i) {
      const RowReading& row = sight.rows[i];
      is_wrong = is_wrong || (row.lse_is_wrong && times_of(i).max().item<double>() > 0);
      is_right = is_right || row.lse_is_proved;
    }
    if (is_right && !is_wrong) return;
    for (std::size_t i = 0; i < sight.rows.size(); ++i) {
      RowReading& row = sight.rows[i];
      if (row.only_lse_counts) times_of(i).clamp_max_(1.0);
      if (row.only_lse_counts && is_wrong) row.lse_is_wrong = true;
    }
  }

  Prober& prober_;
  const AskedCase& asked_;
  bool trusts_lse_;
  std::int64_t keys_;
  double tolerance_;
  at::Tensor weights_;  // [heads, q, kv]: elements of out
  at::Tensor lse_;      // fp64 [q, heads]; undefined if the implementation returns none
  std::int64_t keys_asked_ = 0;
};

// bool, one per query.
at::Tensor has_nan(const at::Tensor& results) {
  return results.isnan().flatten(1).any(1);
}

}  // namespace

ForwardReading read_forward(Prober& prober, const AskedCase& asked, const at::Tensor& expected, bool trusts_lse) {
  WeightProbe probe(prober, asked, trusts_lse);
  ForwardReading reading;
  reading.why_not = probe.ask();
  if (!reading.why_not.empty()) return reading;
  std::vector<Sight> sights = probe.sights();
  Sight* chosen = nullptr;
  for (Sight& sight : sights) {
    if (!wrong_pairs(sight.times, expected).any().item<bool>()) continue;
    if (chosen == nullptr || sight.heads.size() > chosen->heads.size()) chosen = &sight;
  }
  reading.wrong = prober.agreed(chosen != nullptr);
  reading.heads_differ = prober.agreed(sights.size() > 1);
  reading.sight = std::move(chosen == nullptr ? sights.front() : *chosen);
  reading.has_lse = probe.has_lse();
  reading.keys_asked = probe.keys_asked();
  return reading;
}

std::int64_t queries_spoilt_by_padding(Prober& prober, const AskedCase& asked) {
  if (!prober.has_time()) return 0;
  CanonicalInputs inputs = forward_inputs(prober, asked);
  (void)set_one_hot(inputs.v, 0);
  const Results clean = prober.ask(asked, inputs);
  const Results poisoned = prober.ask(asked, inputs, Prober::Padding::declared);
  if (!clean.out.defined() || !poisoned.out.defined()) return 0;
  const at::Tensor spoilt = has_nan(poisoned.out).logical_and(has_nan(clean.out).logical_not());
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < spoilt.size(0); ++i) {
    if (!prober.grid().q.row(i).padding && spoilt[i].item<bool>()) ++count;
  }
  return prober.agreed_number(count);
}

at::Tensor expected_sight(const AskedCase& asked, const SequenceLengths& lengths, const ProbeGrid& grid) {
  const auto problem = verify::canonical_problem(asked.c, lengths);
  at::Tensor expected = at::zeros({grid.q.size(), grid.kv.size()}, at::kDouble);
  std::int64_t first_q = 0;
  std::int64_t first_kv = 0;
  for (std::size_t b = 0; b < lengths.valid_q.size(); ++b) {
    const std::int64_t sq = lengths.valid_q[b];
    const std::int64_t skv = lengths.valid_kv[b];
    expected.narrow(0, first_q, sq).narrow(1, first_kv, skv).copy_(verify::visible_keys(problem, sq, skv, 0, sq));
    first_q += grid.q.lengths[b];
    first_kv += grid.kv.lengths[b];
  }
  return expected;
}

at::Tensor wrong_pairs(const at::Tensor& times, const at::Tensor& expected) {
  return times.ne(expected).logical_and_(times.isnan().logical_not_());
}

}  // namespace cp_pool::diagnosis
