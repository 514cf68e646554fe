// Mistakes that show in rows of padding and in valid rows that see no key: by which of these rows are wrong, and what
// they hold.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/hypothesis_check.h"
#include "cp_core/diagnosis/mask_rule.h"

namespace cp_pool::diagnosis {
namespace {

using verify::Results;

// Properties of the rows of one kind of result: bool [rows, heads].
struct Rows {
  const Given& given;
  at::Tensor wrong;
  at::Tensor padding;
  at::Tensor empty;   // valid queries that see no key, or keys that no query sees
  at::Tensor finite;  // all returned values are finite
};

using AreSo = std::function<at::Tensor(const Rows&)>;

std::vector<Rows> wrong_rows(const HypothesisCheck& check) {
  const DenseProblem& dense = check.dense();
  const at::Tensor times = SimulatedStep(dense).forward.times;
  std::vector<Rows> all;
  for (const Given& given : check.fits().given()) {
    const at::Tensor wrong = check.fits().errors(given).gt(1.0);
    if (!wrong.any().item<bool>()) continue;
    const at::Tensor none = at::zeros_like(wrong);
    all.push_back(
        {.given = given, .wrong = wrong, .padding = none, .empty = none, .finite = given.value.isfinite().all(-1)});
    const Side* const side = dense.side_of(given.member);
    if (side == nullptr) continue;
    const at::Tensor seen = times.sum(is_of_queries(given.member) ? 1 : 0).ne(0.0).index_select(0, side->original);
    all.back().padding = side->valid.logical_not().unsqueeze(1).expand_as(wrong);
    all.back().empty = side->valid.logical_and(seen.logical_not()).unsqueeze(1).expand_as(wrong);
  }
  return all;
}

// Whether some row is wrong, and all wrong rows are so.
bool all_are(const std::vector<Rows>& rows, const AreSo& so) {
  return !rows.empty() && std::ranges::none_of(rows, [&](const Rows& of) {
    return of.wrong.logical_and(so(of).logical_not()).any().item<bool>();
  });
}

// Whether some wrong row of this result is so.
bool some_are(const std::vector<Rows>& rows, at::Tensor Results::* member, const AreSo& so) {
  return std::ranges::any_of(rows, [&](const Rows& of) {
    return of.given.member == member && of.wrong.logical_and(so(of)).any().item<bool>();
  });
}

at::Tensor sees_nothing(const Rows& of) {
  return of.empty.logical_or(of.padding);
}

// bool [q rows, 1]: whether the row is in a half of a rank's rows of a sequence that is all padding.
at::Tensor padding_halves(const DenseProblem& dense) {
  const Side& side = dense.q_rows;
  const std::int64_t batch = dense.c().batch;
  const at::Tensor half = side.rank.mul(batch).add(side.sequence).mul(2).add(side.half);
  const at::Tensor valid =
      at::zeros({2 * batch * dense.ranks}, half.options()).scatter_add(0, half, side.valid.to(at::kLong));
  return valid.index_select(0, half).eq(0).unsqueeze(1);
}

// The wrong rows of out and lse hold NaN or infinities, and see no key or are in a half that is all padding. Gradients
// may have inherited them.
bool nan_without_keys(const HypothesisCheck& check) {
  const std::vector<Rows> rows = wrong_rows(check);
  const at::Tensor halves = padding_halves(check.dense());
  const auto are_nan = [](const Rows& of) { return of.finite.logical_not(); };
  const bool only = all_are(rows, [&](const Rows& of) {
    if (of.given.member == &Results::max_logit) return at::zeros_like(of.wrong);
    if (of.given.member != &Results::out && of.given.member != &Results::lse) return are_nan(of);
    return are_nan(of).logical_and(of.empty.logical_or(of.padding.logical_and(halves)));
  });
  // The forward may hide NaN of which the backward takes the derivative.
  const auto are_empty_nan = [&](const Rows& of) { return are_nan(of).logical_and(of.empty); };
  return only && (some_are(rows, &Results::out, are_nan) || some_are(rows, &Results::dq, are_empty_nan));
}

// The wrong rows of out, lse and dq are padding. Other wrong results are sums over queries; in dk and dv, only keys
// that padding queries would see.
bool padding_queries(const HypothesisCheck& check) {
  const std::vector<Rows> rows = wrong_rows(check);
  const DenseProblem& dense = check.dense();
  MaskRule rule(dense);
  rule.padding_queries = true;
  const at::Tensor met = rule.times().masked_fill(dense.q_rows.valid.unsqueeze(1), 0.0).sum(0).gt(0.0).unsqueeze(1);
  const bool only = all_are(rows, [&](const Rows& of) {
    // NaN in padding reaches gradients through hidden pairs too.
    if (is_of_keys(of.given.member)) return met.logical_or(of.finite.logical_not());
    return is_of_queries(of.given.member) ? of.padding : at::ones_like(of.wrong);
  });
  return only && some_are(rows, &Results::lse, &Rows::padding);
}

// Padding holds NaN. lse is wrong in exactly the rows that would see padding keys, and every wrong row of every result
// holds NaN or infinities.
bool padding_keys_with_nan(const HypothesisCheck& check) {
  const DenseProblem& dense = check.dense();
  MaskRule rule(dense);
  rule.padding_keys = true;
  const at::Tensor sees = rule.times().mul(dense.kv_rows.poisoned).sum(1).gt(0.0).unsqueeze(1);
  const std::vector<Rows> rows = wrong_rows(check);
  return all_are(rows, [](const Rows& of) { return of.finite.logical_not(); }) &&
         std::ranges::any_of(rows, [&](const Rows& of) {
           return of.given.member == &Results::lse && of.wrong.eq(sees).all().item<bool>();
         });
}

bool out_without_keys(const HypothesisCheck& check) {
  const std::vector<Rows> rows = wrong_rows(check);
  const bool only = all_are(rows, [](const Rows& of) {
    return of.given.member == &Results::lse ? sees_nothing(of) : sees_nothing(of).logical_and(of.finite);
  });
  return only && some_are(rows, &Results::out, &Rows::empty);
}

bool lse_without_keys(const HypothesisCheck& check) {
  const std::vector<Rows> rows = wrong_rows(check);
  const bool only = all_are(rows, [](const Rows& of) {
    // dsink sums the sink's weight in these rows, which is NaN or infinite if the lse is minus infinity.
    if (of.given.member == &Results::dsink) return of.finite.logical_not();
    if (of.given.member != &Results::lse) return at::zeros_like(of.wrong);
    return sees_nothing(of).logical_and(of.given.value.squeeze(-1).isnan().logical_not());
  });
  return only && some_are(rows, &Results::lse, &Rows::empty);
}

}  // namespace

Hypotheses empty_row_hypotheses(const DenseProblem& dense, const Symptoms& /*symptoms*/) {
  Hypotheses all;
  const auto add = [&all](std::string id, std::string says, bool (*shows)(const HypothesisCheck&)) {
    all.push_back({.id = std::move(id), .says = std::move(says), .shows = shows});
  };
  add("padding_not_zeroed",
      "only padding rows are wrong: they hold values other than 0 (in lse: other than minus infinity)",
      [](const HypothesisCheck& check) { return all_are(wrong_rows(check), &Rows::padding); });
  if (dense.c().pad_between_seqs) {
    add("padding_not_zeroed",
        "queries at padding positions take part: they have results, and contribute to sums over queries",
        padding_queries);
    add("padding_keys_seen",
        "keys at padding positions take part: their NaN spreads to the queries that see them and to all results of "
        "these queries",
        padding_keys_with_nan);
    all.back().of_mask = true;
  }
  add("empty_rows_nan", "rows that see no key, or rows in a half that is all padding, are NaN", nan_without_keys);
  add("empty_rows_not_zero", "the results of valid rows that see no key are not 0", out_without_keys);
  add("empty_lse_wrong",
      fmt::format("the lse of valid rows that see no key is not {}",
                  dense.sink.defined() ? "the sink" : "minus infinity"),
      lse_without_keys);
  return all;
}

}  // namespace cp_pool::diagnosis
