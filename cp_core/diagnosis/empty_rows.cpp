// Mistakes that show in rows of padding and in valid rows that see no key: by which of these rows are wrong, and what
// they hold.
#include <string>
#include <utility>

#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "cp_core/diagnosis/bench.h"
#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/mask_rule.h"

namespace cp_pool::diagnosis {
namespace {

using verify::Results;

// Properties of the rows of one kind of result.
struct Rows {
  at::Tensor wrong;    // bool [rows, heads]
  at::Tensor padding;  // bool [rows, 1]
  at::Tensor empty;    // bool [rows, 1]: valid queries that see no key, or keys that no query sees
  at::Tensor finite;   // bool [rows, heads]: all returned values are finite
};

class EmptyRows {
 public:
  explicit EmptyRows(const Bench& bench) : bench_(bench), times_(Model(bench.world()).forward.times) {}

  // Whether some row is wrong, and all wrong rows satisfy `are`.
  [[nodiscard]] bool all_wrong(const std::function<at::Tensor(const Given&, const Rows&)>& are) const {
    bool some = false;
    for (const Given& given : bench_.fits().given()) {
      const Rows rows = rows_of(given);
      if (!rows.wrong.any().item<bool>()) continue;
      some = true;
      if (rows.wrong.logical_and(are(given, rows).logical_not()).any().item<bool>()) return false;
    }
    return some;
  }

  // Whether some wrong row of this result satisfies `are`.
  [[nodiscard]] bool some_wrong(at::Tensor Results::* member, const std::function<at::Tensor(const Rows&)>& are) const {
    for (const Given& given : bench_.fits().given()) {
      if (given.member != member) continue;
      const Rows rows = rows_of(given);
      if (rows.wrong.logical_and(are(rows)).any().item<bool>()) return true;
    }
    return false;
  }

  // bool [q rows, 1]: whether the row is in a half of a rank's rows of a sequence that is all padding.
  [[nodiscard]] at::Tensor padding_halves() const {
    const Side& side = bench_.world().q_rows;
    const std::int64_t batch = bench_.world().c().batch;
    const at::Tensor half = side.rank.mul(batch).add(side.sequence).mul(2).add(side.half);
    const at::Tensor valid =
        at::zeros({2 * batch * bench_.world().ranks}, half.options()).scatter_add(0, half, side.valid.to(at::kLong));
    return valid.index_select(0, half).eq(0).unsqueeze(1);
  }

 private:
  [[nodiscard]] Rows rows_of(const Given& given) const {
    const World& world = bench_.world();
    Rows rows;
    rows.wrong = bench_.fits().errors(given).gt(1.0);
    rows.finite = given.value.isfinite().all(-1);
    const Side* const side = world.side_of(given.member);
    rows.padding = rows.empty = at::zeros_like(rows.wrong);
    if (side == nullptr) return rows;
    rows.padding = side->valid.logical_not().unsqueeze(1);
    rows.empty = times_.sum(is_of_queries(given.member) ? 1 : 0).eq(0.0).logical_and(side->valid).unsqueeze(1);
    return rows;
  }

  const Bench& bench_;
  at::Tensor times_;
};

bool is_gradient(const Given& given) {
  return given.member != &Results::out && given.member != &Results::lse && given.member != &Results::max_logit;
}

// Only rows of padding are wrong.
bool padding_alone(const Bench& bench) {
  return EmptyRows(bench).all_wrong([](const Given&, const Rows& rows) { return rows.padding.expand_as(rows.wrong); });
}

// The wrong rows of out and lse hold NaN or infinities, and see no key or are in a half that is all padding. Gradients
// may have inherited them.
bool nan_without_keys(const Bench& bench) {
  const EmptyRows rows(bench);
  const at::Tensor halves = rows.padding_halves();
  const bool only = rows.all_wrong([&halves](const Given& given, const Rows& of) {
    at::Tensor no_number = of.finite.logical_not();
    if (is_gradient(given)) return no_number;
    if (given.member == &Results::max_logit) return at::zeros_like(of.wrong);
    return no_number.logical_and(of.empty.logical_or(of.padding.logical_and(halves)));
  });
  // The forward may hide NaN of which the backward takes the derivative.
  const auto are_nan = [](const Rows& of) { return of.finite.logical_not(); };
  const auto are_empty_nan = [](const Rows& of) { return of.finite.logical_not().logical_and(of.empty); };
  return only && (rows.some_wrong(&Results::out, are_nan) || rows.some_wrong(&Results::dq, are_empty_nan));
}

// bool [q rows, kv rows]: the pairs that the mask would allow if padding queries or padding keys took part.
at::Tensor pairs_with_padding(const World& world, bool queries, bool keys) {
  MaskRule rule(world);
  rule.padding_queries = queries;
  rule.padding_keys = keys;
  return rule.times().ne(0.0);
}

// The wrong rows of out, lse and dq are padding. Other wrong results are sums over queries; in dk and dv, only keys
// that padding queries would see.
bool padding_queries(const Bench& bench) {
  const EmptyRows rows(bench);
  const World& world = bench.world();
  const at::Tensor met = pairs_with_padding(world, /*queries=*/true, /*keys=*/false)
                             .logical_and(world.q_rows.valid.logical_not().unsqueeze(1))
                             .any(0)
                             .unsqueeze(1);
  const bool only = rows.all_wrong([&](const Given& given, const Rows& of) {
    // NaN in padding reaches gradients through hidden pairs too.
    if (is_of_keys(given.member)) return met.logical_or(of.finite.logical_not());
    return is_of_queries(given.member) ? of.padding.expand_as(of.wrong) : at::ones_like(of.wrong);
  });
  return only && rows.some_wrong(&Results::lse, [](const Rows& of) { return of.padding.expand_as(of.wrong); });
}

// Padding holds NaN. lse is wrong in exactly the rows that would see padding keys, and every wrong row of every result
// holds NaN or infinities.
bool padding_keys_with_nan(const Bench& bench) {
  const World& world = bench.world();
  if (!world.kv_rows.poisoned.any().item<bool>()) return false;
  const at::Tensor sees = pairs_with_padding(world, /*queries=*/false, /*keys=*/true)
                              .logical_and(world.kv_rows.poisoned.unsqueeze(0))
                              .any(1)
                              .unsqueeze(1);
  bool same_lse = false;
  for (const Given& given : bench.fits().given()) {
    const at::Tensor wrong = bench.fits().errors(given).gt(1.0);
    if (wrong.logical_and(given.value.isfinite().all(-1)).any().item<bool>()) return false;
    if (given.member == &Results::lse) same_lse = wrong.eq(sees).all().item<bool>();
  }
  return same_lse && sees.any().item<bool>();
}

bool out_without_keys(const Bench& bench) {
  const EmptyRows rows(bench);
  const bool only = rows.all_wrong([](const Given& given, const Rows& of) {
    const at::Tensor here = of.empty.logical_or(of.padding).expand_as(of.wrong);
    return given.member == &Results::lse ? here : here.logical_and(of.finite);
  });
  return only && rows.some_wrong(&Results::out, [](const Rows& of) { return of.empty.expand_as(of.wrong); });
}

bool lse_without_keys(const Bench& bench) {
  const EmptyRows rows(bench);
  const bool only = rows.all_wrong([](const Given& given, const Rows& of) {
    // dsink sums the sink's weight in these rows, which is NaN or infinite if the lse is minus infinity.
    if (given.member == &Results::dsink) return of.finite.logical_not();
    if (given.member != &Results::lse) return at::zeros_like(of.wrong);
    return of.empty.logical_or(of.padding)
        .expand_as(of.wrong)
        .logical_and(given.value.squeeze(-1).isnan().logical_not());
  });
  return only && rows.some_wrong(&Results::lse, [](const Rows& of) { return of.empty.expand_as(of.wrong); });
}

}  // namespace

Hypotheses empty_row_hypotheses(const World& world, const Symptoms& /*symptoms*/) {
  Hypotheses all;
  const auto add = [&all](std::string id, std::string says, bool (*shows)(const Bench&)) {
    all.push_back({.id = std::move(id), .says = std::move(says), .shows = shows});
  };
  const bool sink = world.sink.defined();
  add("padding_not_zeroed",
      "only padding rows are wrong: they hold values other than 0 (in lse: other than minus infinity)", padding_alone);
  if (world.c().pad_between_seqs) {
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
      fmt::format("the lse of valid rows that see no key is not {}", sink ? "the sink" : "minus infinity"),
      lse_without_keys);
  return all;
}

}  // namespace cp_pool::diagnosis
