#include "cp_core/diagnosis/seen_keys.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cp_core/diagnosis/forward_probe.h"
#include "cp_core/diagnosis/gradient_probe.h"
#include "cp_core/diagnosis/gradient_reading.h"
#include "cp_core/diagnosis/head_probe.h"
#include "cp_core/diagnosis/mask_picture.h"
#include "cp_core/diagnosis/pair_text.h"
#include "cp_core/diagnosis/prober.h"
#include "cp_core/diagnosis/wrong_pairs.h"

namespace cp_pool::diagnosis {
namespace {

constexpr std::int64_t kMostKeys = 4096;
constexpr std::int64_t kMostPairs = kMostKeys * kMostKeys;

std::string counted_heads(std::int64_t heads, std::string_view noun) {
  return fmt::format("{} {}{}", heads, noun, heads == 1 ? "" : "s");
}

std::string heads_of(const AskedCase& asked) {
  std::string heads = counted_heads(asked.c.heads, "head");
  if (asked.c.heads == asked.c.kv_heads) return heads;
  return fmt::format("{} and {}", heads, counted_heads(asked.c.kv_heads, "kv head"));
}

class KeySearch {
 public:
  KeySearch(Implementation& implementation, const JudgedCase& judged, const CpGroups& groups, const Settings& settings)
      : judged_(judged), settings_(settings), prober_(implementation, judged, groups, settings) {}

  SeenKeys find() {
    found_.q_lengths = prober_.grid().q.lengths;
    found_.kv_lengths = prober_.grid().kv.lengths;
    found_.why_not = obstacle();
    trusts_lse_ = !fails_alone(is_lse);
    if (found_.why_not.empty()) ask_few_heads();
    if (!found_.why_not.empty()) return std::move(found_);
    // Asks for the failed results first, since time may be short.
    const bool gradients_first = judged_.c.training && fails_alone(is_gradient);
    if (gradients_first) ask_gradients_of(*few_, "");
    ask_all_heads();
    ask_mapping_of_heads();
    ask_padding();
    if (judged_.c.training && !gradients_first) ask_gradients_of(*few_, "");
    if (judged_.c.training && own_ && !found_.gradients_wrong) ask_gradients_of(*own_, kWithAllHeads);
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
    if (keys > kMostKeys || queries * keys > kMostPairs) {
      return fmt::format(
          "the case has {} queries and {} keys, padding included, but at most {} of each can be probed: diagnose a "
          "smaller case that also fails",
          queries, keys, kMostKeys);
    }
    own_ = prober_.asked_case(judged_.c.heads, judged_.c.kv_heads);
    few_ = prober_.with_few_heads();
    if (!few_) few_ = std::exchange(own_, std::nullopt);
    if (!few_) return "the implementation skips the case if it has no bias and a vanilla softmax";
    if (own_ && own_->c.heads == few_->c.heads && own_->c.kv_heads == few_->c.kv_heads) own_.reset();
    return {};
  }

  // Whether there is time for a question. If not, adds a note that it was not asked.
  bool begins(const std::string& question, Prober::Part part) {
    if (!prober_.has_time(part)) {
      note(fmt::format("there was no time to probe {}", question));
      all_asked_ = false;
      return false;
    }
    if (settings_.on_phase) settings_.on_phase(question);
    return true;
  }
  void note(std::string text) { notes_.push_back(std::move(text)); }
  void note_all(std::vector<std::string> texts) { std::ranges::move(texts, std::back_inserter(notes_)); }

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

  // --- Which keys each query saw ---

  void ask_few_heads() {
    if (settings_.on_phase) settings_.on_phase(kWhichKeys);
    found_.expected = expected_sight(*few_, judged_.lengths, prober_.grid());
    ForwardReading reading = read_forward(prober_, *few_, found_.expected, trusts_lse_);
    found_.why_not = reading.why_not;
    if (found_.why_not.empty()) adopt(std::move(reading), *few_);
  }

  // If something was wrong with few heads, one block of keys is asked again with the case's own heads. Otherwise all
  // keys are asked with those.
  void ask_all_heads() {
    if (!own_) return;
    if (reading_.wrong || reading_.heads_differ) {
      confirm_with_own_heads();
      return;
    }
    if (!begins(std::string(kWhichKeys) + kWithAllHeads, Prober::Part::forward)) return;
    ForwardReading reading = read_forward(prober_, *own_, found_.expected, trusts_lse_);
    const std::int64_t keys = prober_.grid().kv.size();
    if (!reading.why_not.empty()) {
      note(fmt::format("the probe with {} gave no answer: {}", heads_of(*own_), reading.why_not));
      all_asked_ = false;
    } else if (reading.wrong || reading.heads_differ || reading.keys_asked == keys) {
      adopt(std::move(reading), *own_);
    } else {
      note(fmt::format("the probe with {} covered {} of {} keys: there was no time for the other keys", heads_of(*own_),
                       reading.keys_asked, keys));
    }
  }

  void confirm_with_own_heads() {
    const at::Tensor wrong = wrong_pairs(reading_.sight.times, found_.expected).any(0).nonzero();
    const std::int64_t first_key = wrong.numel() > 0 ? wrong.min().item<std::int64_t>() : 0;
    const std::int64_t block = judged_.c.head_dim_v;
    const std::int64_t first = prober_.agreed_number(first_key / block * block);
    const std::optional<bool> same = sees_the_same(prober_, *own_, reading_.sight, first);
    if (!same || *same) return;
    note(fmt::format("these pairs were seen with {}, and other pairs with {}: the fault depends on heads",
                     heads_of(*few_), heads_of(*own_)));
  }

  void adopt(ForwardReading reading, const AskedCase& asked) {
    reading_ = std::move(reading);
    used_ = &asked;
    found_.times = reading_.sight.times;
    found_.wrong = reading_.wrong;
    found_.heads_differ = reading_.heads_differ;
    found_.whole_numbers = std::ranges::none_of(reading_.sight.rows, [](const RowReading& row) {
      return row.kind == RowReading::Kind::weights || row.negative;
    });
  }

  [[nodiscard]] const AskedCase& with_most_heads() const { return own_ ? *own_ : *few_; }

  void ask_mapping_of_heads() {
    if (found_.wrong || with_most_heads().c.heads == 1) return;
    if (!begins("which kv heads each query head read", Prober::Part::forward)) return;
    HeadMapping mapping = ask_heads(prober_, with_most_heads(), judged_.c.training);
    all_asked_ = all_asked_ && mapping.asked;
    note_all(std::move(mapping.notes));
    found_.heads_differ = found_.heads_differ || prober_.agreed(mapping.wrong);
  }

  // In all earlier questions, padding rows hold codes. If the implementation declares that padding may hold NaN, this
  // asks once more with NaN there.
  void ask_padding() {
    const auto is_padding = [](const GridRow& row) { return row.padding; };
    const ProbeGrid& grid = prober_.grid();
    const bool has_padding =
        std::ranges::any_of(grid.q.rows, is_padding) || std::ranges::any_of(grid.kv.rows, is_padding);
    if (found_.wrong || judged_.sharding.padding != verify::PaddingFill::nan || !has_padding) return;
    spoilt_by_padding_ = queries_spoilt_by_padding(prober_, *few_);
    if (spoilt_by_padding_ == 0) return;
    note(
        fmt::format("the output of {} queries is NaN if padding holds NaN, and is not NaN if padding holds numbers: "
                    "padding is read, with weight 0",
                    spoilt_by_padding_));
  }

  // --- Which pairs gradients have ---

  // Asks again with the other choice of key values if anything is wrong.
  void ask_gradients_of(const AskedCase& asked, const char* with) {
    if (!begins(std::string("which pairs dq, dk and dv count") + with, Prober::Part::whole)) return;
    const Gradients first = ask_gradients(prober_, asked, KeyValues::first);
    if (!first.why_not.empty()) {
      note(fmt::format("the pairs that dq, dk and dv count are unknown: {}", first.why_not));
      all_asked_ = false;
      return;
    }
    for (const GradientValues& gradient : first.all) all_asked_ = all_asked_ && gradient.asked == gradient.to_ask;
    GradientReading reading = judge_gradients(first, nullptr);
    if (!prober_.agreed(reading.wrong)) {
      note_all(std::move(reading.notes));
      return;
    }
    found_.gradients_wrong = true;
    const Gradients second = ask_gradients(prober_, asked, KeyValues::second);
    note_all(judge_gradients(first, &second).notes);
  }

  // Only rank 0 judges; other ranks return an empty reading.
  GradientReading judge_gradients(const Gradients& first, const Gradients* second) const {
    GradientReading whole;
    if (!prober_.is_rank_0()) return whole;
    // Gradients are compared with what the forward saw, if that is known and the same for all heads.
    const bool is_known = found_.whole_numbers && !found_.heads_differ;
    const bool by_sight = is_known && reading_.keys_asked == prober_.grid().kv.size();
    const GradientMeasure measure{.seen = by_sight ? found_.times : found_.expected, .is_observed = by_sight};
    for (const GradientValues& gradient : first.all) {
      const GradientValues* again = nullptr;
      for (std::size_t i = 0; second != nullptr && i < second->all.size(); ++i) {
        if (second->all[i].name == gradient.name) again = &second->all[i];
      }
      GradientReading one = read_gradient(prober_, gradient, again, measure);
      whole.wrong = whole.wrong || one.wrong;
      std::ranges::move(one.notes, std::back_inserter(whole.notes));
    }
    return whole;
  }

  // --- Rank 0's words ---

  void tell() {
    std::string prefix;
    const Sight& sight = reading_.sight;
    if (reading_.heads_differ) {
      prefix = fmt::format("head{} {} of {}: ", sight.heads.size() == 1 ? "" : "s", numbers_text(sight.heads),
                           used_->c.heads);
    }
    const SightPairs pairs{.grid = prober_.grid(),
                           .judged = judged_,
                           .times = found_.times,
                           .expected = found_.expected,
                           .rows = sight.rows,
                           .has_lse = reading_.has_lse,
                           .prefix = prefix};
    std::vector<std::string> of_queries = std::exchange(notes_, {});
    if (found_.wrong) {
      found_.pairs = find_wrong_pairs(pairs);
      found_.picture = draw_mask(prober_.grid(), found_.times, found_.expected, sight.rows);
      note_all(notes_on_pairs(pairs));
    }
    note_all(notes_on_weights(pairs));
    if (reading_.heads_differ) note("the other heads saw other keys");
    tell_limits();
    note_all(std::move(of_queries));
    tell_what_vanished();
    found_.notes = std::move(notes_);
  }

  // Notes what could not be observed of the forward.
  void tell_limits() {
    const std::int64_t keys = prober_.grid().kv.size();
    if (reading_.keys_asked < keys) {
      note(fmt::format("{} of {} keys were probed: there was no time for the other keys", reading_.keys_asked, keys));
    }
    if (!reading_.has_lse) {
      note(
          "no lse is returned, so the weights of each query are known only up to a common factor. A query that saw "
          "every key twice would look right. Unequal weights may come from keys that were seen more than once, or from "
          "parts that were merged wrongly");
    }
    if (!reading_.unread_heads.empty()) {
      note(fmt::format("heads {} were not examined: too many heads differ", numbers_text(reading_.unread_heads)));
    }
  }

  // Notes that a fault which did not show must lie in something that the questions leave out.
  void tell_what_vanished() {
    if (found_.wrong || found_.heads_differ || reading_.keys_asked < prober_.grid().kv.size()) return;
    const auto is_unknown = [](const RowReading& row) { return row.kind == RowReading::Kind::unknown; };
    if (std::ranges::any_of(reading_.sight.rows, is_unknown)) return;
    const auto saw_strangely = [](const RowReading& row) {
      return row.more_in_lse > 0 || row.sum != 1 || row.lse_is_wrong || row.lse_error > 0 || row.only_lse_counts;
    };
    const std::string saw = fmt::format(
        "in the probe with q = 0 and {}, every query saw exactly the keys that it should see", heads_of(*used_));
    if (found_.gradients_wrong || spoilt_by_padding_ > 0 || !all_asked_ ||
        std::ranges::any_of(reading_.sight.rows, saw_strangely)) {
      note(saw);
      return;
    }
    std::vector<std::string> left_out{"scores"};
    if (judged_.c.bias) left_out.emplace_back("the bias");
    if (judged_.c.softmax != SoftmaxType::vanilla) left_out.emplace_back("the sink");
    if (used_->c.heads != judged_.c.heads || used_->c.kv_heads != judged_.c.kv_heads) left_out.emplace_back("heads");
    note(fmt::format(
        "{}{}. The fault depends on {}, is rounding, or is in a result that was not probed (max_logit, dbias, dsink)",
        saw, judged_.c.training ? ", and dq, dk and dv count the same pairs" : "", fmt::join(left_out, " or ")));
  }

  static constexpr const char* kWhichKeys = "which keys each query saw";
  static constexpr const char* kWithAllHeads = ", with all heads";

  const JudgedCase& judged_;
  const Settings& settings_;
  Prober prober_;
  std::optional<AskedCase> few_;
  std::optional<AskedCase> own_;     // with the case's own heads, if these differ
  const AskedCase* used_ = nullptr;  // the case that reading_ comes from
  ForwardReading reading_;
  // Not where out is right and lse is not: what is wrong may then be the lse alone, whichever keys were seen.
  bool trusts_lse_ = true;
  bool all_asked_ = true;  // every question after the first (the forward with few heads) was asked
  std::int64_t spoilt_by_padding_ = 0;
  std::vector<std::string> notes_;
  SeenKeys found_;
};

}  // namespace

SeenKeys find_seen_keys(Implementation& implementation, const JudgedCase& judged, const CpGroups& groups,
                        const Settings& settings) {
  const at::NoGradGuard no_grad;
  return KeySearch(implementation, judged, groups, settings).find();
}

}  // namespace cp_pool::diagnosis
