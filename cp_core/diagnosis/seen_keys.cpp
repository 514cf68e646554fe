#include "cp_core/diagnosis/seen_keys.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "cp_core/diagnosis/forward_probe.h"
#include "cp_core/diagnosis/mask_picture.h"
#include "cp_core/diagnosis/pair_text.h"
#include "cp_core/diagnosis/prober.h"
#include "cp_core/diagnosis/wrong_pairs.h"

namespace cp_pool::diagnosis {
namespace {

constexpr std::int64_t kMostRows = 4096;
// The most weights of all heads: 512 MiB.
constexpr std::int64_t kMostWeights = std::int64_t{1} << 27U;

class KeySearch {
 public:
  KeySearch(Implementation& implementation, const JudgedCase& judged, const CpGroups& groups, const Settings& settings)
      : judged_(judged), settings_(settings), prober_(implementation, judged, groups, settings) {}

  SeenKeys find() {
    const ProbeGrid& grid = prober_.grid();
    found_.q_lengths = grid.q.lengths;
    found_.kv_lengths = grid.kv.lengths;
    found_.why_not = obstacle();
    if (!found_.why_not.empty()) return std::move(found_);
    trusts_lse_ = !fails_alone(is_lse);
    found_.expected = expected_sight(*few_, judged_.lengths, grid);
    if (settings_.on_phase) settings_.on_phase("which keys each query saw");
    ForwardReading reading = read_forward(prober_, *few_, found_.expected, trusts_lse_);
    found_.why_not = reading.why_not;
    if (!found_.why_not.empty()) return std::move(found_);
    adopt(std::move(reading), few_->c);
    ask_all_heads();
    ask_padding();
    if (prober_.is_rank_0()) tell();
    return std::move(found_);
  }

 private:
  // Chooses the cases to ask. Returns why nothing can be asked, as a sentence; empty if something can.
  std::string obstacle() {
    const std::int64_t queries = prober_.grid().q.size();
    const std::int64_t keys = prober_.grid().kv.size();
    if (queries == 0 || keys == 0) return "the case has no queries, or no keys";
    if (judged_.c.replicated > 0) return "the case has replicated tokens, which cannot be probed";
    if (queries > kMostRows || keys > kMostRows) {
      return fmt::format(
          "the case has {} queries and {} keys, padding included, but at most {} of each can be probed: diagnose a "
          "smaller case that also fails",
          queries, keys, kMostRows);
    }
    own_ = prober_.asked_case(judged_.c.heads, judged_.c.kv_heads);
    few_ = prober_.with_few_heads();
    if (!few_) few_ = std::exchange(own_, std::nullopt);
    if (!few_) return "the implementation skips the case if it has no bias and a vanilla softmax";
    const bool same = own_ && own_->c.heads == few_->c.heads && own_->c.kv_heads == few_->c.kv_heads;
    if (same || queries * keys * judged_.c.heads > kMostWeights) own_.reset();
    return {};
  }

  // What a check is about, in the case or in its mask probe.
  static bool is_out(std::string_view check) { return check.ends_with("out"); }
  static bool is_lse(std::string_view check) { return check.ends_with("lse"); }
  static bool is_gradient(std::string_view check) { return !is_out(check) && !is_lse(check); }

  // Whether a check of this kind fails, and no other check of the forward. Collective, since a check fails only on the
  // ranks that own the wrong rows.
  bool fails_alone(bool (*is_of_kind)(std::string_view)) {
    const auto fails = [&](bool of_kind) {
      return prober_.anywhere(std::ranges::any_of(judged_.checks, [&](const Check& check) {
        return !check.ok && is_of_kind(check.tensor) == of_kind && (of_kind || !is_gradient(check.tensor));
      }));
    };
    const bool others_fail = fails(false);
    return fails(true) && !others_fail;
  }

  // If nothing was wrong with few heads, asks again with the case's own heads.
  void ask_all_heads() {
    if (!own_ || reading_.wrong || reading_.heads_differ || !prober_.has_time()) return;
    if (settings_.on_phase) settings_.on_phase("which keys each query saw, with all heads");
    ForwardReading reading = read_forward(prober_, *own_, found_.expected, trusts_lse_);
    const bool whole = reading.keys_asked == prober_.grid().kv.size();
    if (reading.why_not.empty() && (reading.wrong || reading.heads_differ || whole)) adopt(std::move(reading), own_->c);
  }

  void adopt(ForwardReading reading, const Case& asked) {
    reading_ = std::move(reading);
    heads_ = asked.heads;
    found_.times = reading_.sight.times;
    found_.wrong = reading_.wrong;
    found_.heads_differ = reading_.heads_differ;
    found_.whole_numbers = std::ranges::none_of(reading_.sight.rows, [](const RowReading& row) {
      return row.kind == RowReading::Kind::weights || row.negative;
    });
  }

  // In all earlier questions, padding rows hold codes. If the implementation declares that padding may hold NaN, this
  // asks once more with NaN there.
  void ask_padding() {
    const auto is_padding = [](const GridRow& row) { return row.padding; };
    const ProbeGrid& grid = prober_.grid();
    const bool has_padding =
        std::ranges::any_of(grid.q.rows, is_padding) || std::ranges::any_of(grid.kv.rows, is_padding);
    if (found_.wrong || judged_.sharding.padding != verify::PaddingFill::nan || !has_padding) return;
    const std::int64_t spoilt = queries_spoilt_by_padding(prober_, *few_);
    if (spoilt == 0) return;
    found_.notes.push_back(
        fmt::format("the output of {} queries is NaN if padding holds NaN, and is not NaN if padding holds numbers: "
                    "padding is read, with weight 0",
                    spoilt));
  }

  // Finds rank 0's words.
  void tell() {
    std::string prefix;
    const Sight& sight = reading_.sight;
    if (reading_.heads_differ) {
      prefix = fmt::format("head{} {} of {}: ", sight.heads.size() == 1 ? "" : "s", numbers_text(sight.heads), heads_);
    }
    const SightPairs pairs{.grid = prober_.grid(),
                           .times = found_.times,
                           .expected = found_.expected,
                           .rows = sight.rows,
                           .has_lse = reading_.has_lse,
                           .prefix = prefix};
    if (found_.wrong) {
      found_.pairs = find_wrong_pairs(pairs);
      found_.picture = draw_mask(prober_.grid(), found_.times, found_.expected, sight.rows);
    }
    for (std::string& note : notes_on_weights(pairs)) found_.notes.push_back(std::move(note));
    if (reading_.heads_differ) found_.notes.emplace_back("the other heads saw other keys");
  }

  const JudgedCase& judged_;
  const Settings& settings_;
  Prober prober_;
  std::optional<AskedCase> few_;
  std::optional<AskedCase> own_;  // with the case's own heads, if these differ
  std::int64_t heads_ = 0;        // of the case that reading_ comes from
  ForwardReading reading_;
  // Not where out is right and lse is not: what is wrong may then be the lse alone, whichever keys were seen.
  bool trusts_lse_ = true;
  SeenKeys found_;
};

}  // namespace

SeenKeys find_seen_keys(Implementation& implementation, const JudgedCase& judged, const CpGroups& groups,
                        const Settings& settings) {
  const at::NoGradGuard no_grad;
  return KeySearch(implementation, judged, groups, settings).find();
}

}  // namespace cp_pool::diagnosis
