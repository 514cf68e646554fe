#include "cp_core/diagnosis/gradient_probe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include "cp_core/diagnosis/pair_blocks.h"
#include "cp_core/diagnosis/pair_summary.h"
#include "cp_core/diagnosis/pair_text.h"

namespace cp_pool::diagnosis {
namespace {

using verify::CanonicalInputs;
using verify::Results;
using Part = Prober::Part;

constexpr std::int64_t kMostGradientValues = std::int64_t{1} << 26U;  // of each gradient: 256 MiB
constexpr double kHeadsAgree = 0.02;

// The element of v and dout that all keys and queries use; the others are for codes.
constexpr std::int64_t kCommonElement = 0;

void fill_key_values(at::Tensor& v) {
  std::vector<double> values;
  for (std::int64_t j = 0; j < v.size(0); ++j) values.push_back(key_value(j));
  v.select(2, kCommonElement).copy_(at::tensor(values, at::kDouble).unsqueeze(1));
}

// Row first + s has 1 in element first_element + s.
void add_one_hot(at::Tensor& rows, std::int64_t first, std::int64_t count, std::int64_t first_element) {
  for (std::int64_t s = 0; s < count; ++s) rows.select(0, first + s).select(1, first_element + s).fill_(1);
}

class GradientProbe {
 public:
  GradientProbe(Prober& prober, const AskedCase& asked)
      : prober_(prober),
        asked_(asked),
        queries_(prober.grid().q.size()),
        keys_(prober.grid().kv.size()),
        unit_(std::sqrt(static_cast<double>(asked.c.head_dim_qk))),
        group_(asked.c.heads / asked.c.kv_heads) {}

  Gradients ask() {
    ask_with_q_zero();
    if (found_.why_not.empty()) ask_with_k_zero();
    return std::move(found_);
  }

 private:
  GradientValues values_of(std::string_view name, bool of_keys, bool of_scores) const {
    return {.name = name,
            .of_keys = of_keys,
            .of_scores = of_scores,
            .values = {of_keys ? asked_.c.kv_heads : asked_.c.heads, queries_, keys_, kHeadsAgree, kMostGradientValues},
            .to_ask = of_keys ? queries_ : keys_};
  }

  // dq and dv.
  void ask_with_q_zero() {
    GradientValues dq = values_of("dq", false, true);
    GradientValues dv = values_of("dv", true, false);
    const std::int64_t dv_elements = asked_.c.head_dim_v - 1;
    CanonicalInputs inputs = prober_.zeros(asked_);
    fill_key_values(inputs.v);
    bool repeated = !prober_.promises_bits(asked_);
    while ((dq.asked < keys_ || (dv.asked < queries_ && dv_elements > 0)) && prober_.has_time(Part::whole)) {
      const std::int64_t keys = std::min(asked_.c.head_dim_qk, keys_ - dq.asked);
      const std::int64_t queries = std::min(dv_elements, queries_ - dv.asked);
      inputs.k.zero_();
      add_one_hot(inputs.k, dq.asked, keys, 0);
      inputs.dout.zero_();
      inputs.dout.select(2, kCommonElement).fill_(1);
      add_one_hot(inputs.dout, dv.asked, queries, 1);
      prober_.clear_padding(inputs.dout);
      const Results results = prober_.ask(asked_, inputs, Part::whole);
      if (!given(results)) return;
      if (!repeated && !repeats(inputs, results)) return;
      repeated = true;
      if (keys > 0) dq.values.set_keys(dq.asked, results.dq.narrow(2, 0, keys).mul(unit_));
      if (queries > 0) dv.values.set_queries(dv.asked, results.dv.narrow(2, 1, queries).div(group_));
      dq.asked += keys;
      dv.asked += queries;
    }
    found_.all.push_back(std::move(dq));
    found_.all.push_back(std::move(dv));
  }

  // dk.
  void ask_with_k_zero() {
    GradientValues dk = values_of("dk", true, true);
    CanonicalInputs inputs = prober_.zeros(asked_);
    fill_key_values(inputs.v);
    inputs.dout.select(2, kCommonElement).fill_(1);
    prober_.clear_padding(inputs.dout);
    while (dk.asked < queries_ && prober_.has_time(Part::whole)) {
      const std::int64_t queries = std::min(asked_.c.head_dim_qk, queries_ - dk.asked);
      inputs.q.zero_();
      add_one_hot(inputs.q, dk.asked, queries, 0);
      const Results results = prober_.ask(asked_, inputs, Part::whole);
      if (!given(results)) return;
      dk.values.set_queries(dk.asked, results.dk.narrow(2, 0, queries).mul(unit_ / static_cast<double>(group_)));
      dk.asked += queries;
    }
    found_.all.push_back(std::move(dk));
  }

  bool given(const Results& results) {
    if (results.dq.defined() && results.dk.defined() && results.dv.defined()) return true;
    found_.why_not = "a rank gave no dq, dk or dv, or one of another shape";
    return false;
  }

  bool repeats(const CanonicalInputs& inputs, const Results& results) {
    const Results again = prober_.ask(asked_, inputs, Part::whole);
    bool same = true;
    for (const auto member : {&Results::dq, &Results::dk, &Results::dv}) {
      same = same && same_bits(results.*member, again.*member);
    }
    if (prober_.agreed(same)) return true;
    found_.why_not = "the gradients of the same step had other bits when it was repeated";
    return false;
  }

  Prober& prober_;
  const AskedCase& asked_;
  std::int64_t queries_;
  std::int64_t keys_;
  double unit_;  // 1 / scale
  std::int64_t group_;
  Gradients found_;
};

// How a pair stands in a gradient.
enum class Standing : std::int8_t { right, lacking, excess, other, not_told };

// Judges what a gradient has of pairs, and finds the words.
class GradientJudge {
 public:
  GradientJudge(const Prober& prober, const GradientValues& gradient, const PairValues::HeadClass& heads,
                const at::Tensor& seen)
      : prober_(prober),
        gradient_(gradient),
        heads_(heads),
        values_(heads.values.const_data_ptr<float>()),
        seen_(seen.const_data_ptr<double>()),
        keys_(prober.grid().kv.size()),
        lacking_(prober.grid().q.size(), keys_),
        excess_(lacking_),
        other_(lacking_) {
    for (PairLabels* const labels : {&lacking_, &excess_, &other_}) mark_borders(*labels, prober.grid());
  }

  // Whether some pair is wrong.
  bool judge() {
    for (std::int64_t i = 0; i < prober_.grid().q.size(); ++i) {
      if (gradient_.of_keys && i >= gradient_.asked) break;
      judge_query(i);
    }
    return counted(Standing::lacking) + counted(Standing::excess) + counted(Standing::other) > 0;
  }

  [[nodiscard]] std::vector<std::string> notes(std::string_view sees) {
    std::vector<std::string> found;
    if (const std::optional<double> factor = common_factor()) {
      found.push_back(fmt::format("{}{} is {:.3g} times what it should be, for every pair", prefix(), gradient_.name, *factor));
      return found;
    }
    add_summary(found);
    add_blocks(found, lacking_, "lacks", "");
    add_blocks(found, excess_, "has", fmt::format(", though {}", not_seen(sees)));
    add_blocks(found, other_, "counts", "");
    return found;
  }

 private:
  // A value smaller than this part of what is due is none at all; one nearer to it than this is right. Rounding in
  // 16 bits stays well inside.
  static constexpr double kAbsent = 0.1;
  static constexpr double kNear = 0.2;
  // A pair whose g is so near to the mean has nothing to show.
  static constexpr double kLeastDistance = 0.25;
  static constexpr double kNoise = 1e-3;
  static constexpr std::size_t kMostSentences = 3;

  void judge_query(std::int64_t i) {
    double count = 0;
    double mean = 0;
    for (std::int64_t j = 0; j < keys_; ++j) {
      count += seen(i, j);
      mean += seen(i, j) * key_value(j);
    }
    if (std::isnan(count)) return;
    if (count > 0) mean /= count;
    for (std::int64_t j = 0; j < keys_; ++j) {
      if (!gradient_.of_keys && j >= gradient_.asked) break;
      if (gradient_.of_keys && !judges_key(j)) continue;
      const double due = count > 0 ? seen(i, j) / count * (gradient_.of_scores ? key_value(j) - mean : 1) : 0;
      const bool tells = std::abs(due) * std::max(count, 1.0) >= kLeastDistance;
      label(i, j, due, tells, kNoise / std::max(count, 1.0));
    }
  }

  // Whether the gradients of a key are judged: those of padding may hold anything, unless it is promised.
  [[nodiscard]] bool judges_key(std::int64_t j) const {
    return !prober_.grid().kv.row(j).padding || prober_.judged().sharding.judges_padding;
  }

  void label(std::int64_t i, std::int64_t j, double due, bool tells, double noise) {
    const double value = values_[i * keys_ + j];
    const double ratio = value / due;
    Standing standing = Standing::right;
    if (seen(i, j) == 0) {
      // Also NaN.
      if (!(std::abs(value) <= noise)) standing = Standing::excess;
    } else if (!tells && !std::isnan(value)) {
      standing = Standing::not_told;
    } else if (std::abs(ratio) <= kAbsent) {
      standing = Standing::lacking;
    } else if (!(std::abs(ratio - 1) <= kNear)) {
      standing = Standing::other;
    }
    ++counts_[standing];
    if (standing == Standing::lacking) lacking_.at(i, j) = 1;
    if (standing == Standing::excess) excess_.at(i, j) = 1;
    if (standing == Standing::other) other_.at(i, j) = label_of(ratio);
    if (standing == Standing::right || standing == Standing::other) {
      least_ratio_ = std::min(least_ratio_, tells ? ratio : least_ratio_);
      most_ratio_ = std::max(most_ratio_, tells ? ratio : most_ratio_);
    }
  }

  // Ratios that are read alike have one label, which is never 0.
  static constexpr double kLabelsOfAUnit = 10;
  static constexpr std::int32_t kNotANumber = std::numeric_limits<std::int32_t>::max();
  static std::int32_t label_of(double ratio) {
    constexpr double kFar = 1e6;
    if (!std::isfinite(ratio)) return kNotANumber;
    const auto steps = static_cast<std::int32_t>(std::lround(std::clamp(ratio, -kFar, kFar) * kLabelsOfAUnit));
    return steps == 0 ? 1 : steps;
  }
  static std::string ratio_text(std::int32_t label) {
    if (label == kNotANumber) return "with NaN";
    const double ratio = label / kLabelsOfAUnit;
    const bool is_number = ratio >= 2 && std::abs(ratio - std::round(ratio)) < 0.15;
    return is_number ? times_text(std::lround(ratio)) : fmt::format("{:.1f} times", ratio);
  }

  [[nodiscard]] double seen(std::int64_t i, std::int64_t j) const { return seen_[i * keys_ + j]; }
  [[nodiscard]] std::int64_t counted(Standing standing) const {
    const auto found = counts_.find(standing);
    return found == counts_.end() ? 0 : found->second;
  }

  // All pairs that tell have about the same part of what is due, and it is another.
  [[nodiscard]] std::optional<double> common_factor() const {
    if (counted(Standing::lacking) + counted(Standing::excess) > 0 || counted(Standing::right) > 0) return std::nullopt;
    if (!(least_ratio_ > 0) || !(most_ratio_ <= (1 + kNear) * least_ratio_)) return std::nullopt;
    return (least_ratio_ + most_ratio_) / 2;
  }

  // Pairs of ranks between which nothing came through.
  void add_summary(std::vector<std::string>& found) {
    const auto apart = ranks_apart(
        prober_.grid(), [&](std::int64_t i, std::int64_t j) { return seen(i, j) > 0; },
        [&](std::int64_t i, std::int64_t j) { return lacking_.at(i, j) != 0; });
    for (const std::string& who : apart) {
      found.push_back(fmt::format("{}{} has nothing between {}", prefix(), gradient_.name, who));
    }
  }

  void add_blocks(std::vector<std::string>& found, const PairLabels& labels, std::string_view verb,
                  const std::string& ending) {
    for (const PairBlock& block : largest_blocks(labels, kMostSentences)) {
      const GridAxis& q = prober_.grid().q;
      const std::string queries = queries_text(q, {block.q_first, block.q_last});
      const std::string keys =
          keys_text(prober_.grid().kv, {block.kv_first, block.kv_last}, q.row(block.q_first).sequence);
      const std::string times = &labels == &other_ ? " " + ratio_text(block.label) : "";
      found.push_back(fmt::format("{}{} of {} {} {}{}{}", prefix(), gradient_.name, gradient_.of_keys ? keys : queries,
                                  verb, gradient_.of_keys ? queries : keys, times, ending));
    }
  }

  [[nodiscard]] std::string not_seen(std::string_view sees) const {
    const std::string_view not_so = sees == "saw" ? "did not see" : "should not see";
    return gradient_.of_keys ? fmt::format("these {} them", not_so) : fmt::format("they {} these", not_so);
  }

  [[nodiscard]] std::string prefix() const {
    if (gradient_.values.classes().size() == 1 && gradient_.values.unread().empty()) return {};
    return fmt::format("head{} {}: ", heads_.heads.size() == 1 ? "" : "s", numbers_text(heads_.heads));
  }

  const Prober& prober_;
  const GradientValues& gradient_;
  const PairValues::HeadClass& heads_;
  const float* values_;
  const double* seen_;
  std::int64_t keys_;
  PairLabels lacking_;
  PairLabels excess_;
  PairLabels other_;
  std::map<Standing, std::int64_t> counts_;
  double least_ratio_ = std::numeric_limits<double>::infinity();
  double most_ratio_ = -std::numeric_limits<double>::infinity();
};

}  // namespace

double key_value(std::int64_t key) {
  // Four values that follow each other in no order, so that neither neighbours nor every second or fourth key have the
  // same.
  constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15;
  constexpr unsigned kTopBits = 62;
  const std::uint64_t bits = (static_cast<std::uint64_t>(key) + 1) * kMultiplier;
  return static_cast<double>(bits >> kTopBits) - 1.5;
}

Gradients ask_gradients(Prober& prober, const AskedCase& asked) {
  return GradientProbe(prober, asked).ask();
}

GradientReading read_gradient(const Prober& prober, const GradientValues& gradient, const at::Tensor& seen,
                              std::string_view sees) {
  GradientReading reading;
  for (const PairValues::HeadClass& heads : gradient.values.classes()) {
    GradientJudge judge(prober, gradient, heads, seen);
    if (!judge.judge()) continue;
    reading.wrong = true;
    for (std::string& note : judge.notes(sees)) reading.notes.push_back(std::move(note));
  }
  if (!gradient.values.unread().empty()) {
    reading.notes.push_back(fmt::format("{} of heads {} was not read: too many heads differ", gradient.name,
                                        numbers_text(gradient.values.unread())));
  }
  if (gradient.asked < gradient.to_ask) {
    reading.notes.push_back(fmt::format("{} was observed for {} of {} {} alone: there was no time for the others",
                                        gradient.name, gradient.asked, gradient.to_ask,
                                        gradient.of_keys ? "queries" : "keys"));
  }
  return reading;
}

}  // namespace cp_pool::diagnosis
