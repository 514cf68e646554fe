#include "cp_core/diagnosis/gradient_reading.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "cp_core/diagnosis/pair_blocks.h"
#include "cp_core/diagnosis/pair_summary.h"
#include "cp_core/diagnosis/pair_text.h"
#include "cp_core/verify/canonical.h"

namespace cp_pool::diagnosis {
namespace {

constexpr std::size_t kMostNotes = 4;  // per gradient

// Limits on the ratio of what a pair contributes to what is due. A smaller ratio than kAbsent counts as 0, and a ratio
// within kNear of a number (relatively, above 1) counts as that number. Rounding in 16 bits stays well inside.
constexpr double kAbsent = 0.1;
constexpr double kNear = 0.2;

// Returns what a pair should contribute, in units of p.
double due_of(bool of_scores, double g, double mean) {
  return of_scores ? g - mean : 1;
}

enum class Standing : std::uint8_t {
  right,
  lacking,
  excess,     // contributes though the pair was not seen
  other,      // counted another number of times
  bent,       // ds itself is wrong, so nothing can be said about the pair
  no_number,  // NaN or infinite, wherever that comes from: nothing can be said about the pair
  unclear,    // lacking, other or bent
  not_told,   // the pair was not asked for, or its due is too near 0 to be told from it
};
constexpr std::size_t kStandings = 8;

// The ratio of what a pair contributes to what is due, with one choice of g.
struct DueShare {
  double ratio = 0;
  bool tells = false;  // the due can be told from 0
  bool asked = false;
  bool finite = true;
};

bool near(double a, double b) {
  return std::abs(a - b) <= kNear * std::max(1.0, std::abs(b));
}

// Returns how far the ratios of a pair with the two choices of g may differ if it is counted equally often with both.
double agreement(DType dtype) {
  constexpr double kLeast = 0.03;
  constexpr double kRoundings = 10;
  return kLeast + kRoundings * verify::unit_roundoff(dtype);
}

// second: not `asked` if the gradient is not made of ds. tolerance: see agreement().
Standing standing_of(const DueShare& first, const DueShare& second, bool of_scores, double tolerance) {
  if (!first.asked) return Standing::not_told;
  if (!first.finite || !second.finite) return Standing::no_number;
  if (!first.tells) return Standing::not_told;
  const bool first_right = near(first.ratio, 1);
  if (!of_scores) {
    if (first_right) return Standing::right;
    return std::abs(first.ratio) <= kAbsent ? Standing::lacking : Standing::other;
  }
  if (!second.asked) return first_right ? Standing::right : Standing::unclear;
  if (!second.tells) return Standing::not_told;
  if (first_right && near(second.ratio, 1)) return Standing::right;
  if (std::abs(first.ratio) <= kAbsent && std::abs(second.ratio) <= kAbsent) return Standing::lacking;
  const double largest = std::max({1.0, std::abs(first.ratio), std::abs(second.ratio)});
  return std::abs(first.ratio - second.ratio) <= tolerance * largest ? Standing::other : Standing::bent;
}

// Judges the pairs of one class of heads in a gradient, and writes the notes.
class GradientJudge {
 public:
  GradientJudge(const Prober& prober, const GradientValues& gradient, const PairValues::HeadClass& heads,
                const GradientValues* second, const GradientMeasure& measure)
      : prober_(prober),
        gradient_(gradient),
        heads_(heads),
        measure_(measure),
        seen_(measure.seen.const_data_ptr<double>()),
        keys_(prober.grid().kv.size()),
        agreement_(agreement(prober.judged().c.dtype)),
        labels_(prober.grid().q.size(), keys_) {
    mark_borders(labels_, prober.grid());
    values_[0] = heads.values.const_data_ptr<float>();
    asked_[0] = gradient.asked;
    if (second == nullptr) return;
    values_[1] = values_of(*second, heads.heads.front());
    asked_[1] = values_[1] == nullptr ? 0 : second->asked;
  }

  // Judges all pairs. Returns whether one is wrong.
  bool judge() {
    for (std::int64_t i = 0; i < prober_.grid().q.size(); ++i) judge_query(i);
    return std::ranges::any_of(kFaults, [this](Standing fault) { return counted(fault) > 0; });
  }

  std::vector<std::string> notes() {
    if (const std::optional<double> factor = common_factor()) {
      add("{} is {:.3g} times the right value, for every pair", gradient_.name, *factor);
      return std::move(notes_);
    }
    for (const std::string& who : apart()) add("{} counts no pairs between {}", gradient_.name, who);
    add_blocks(Standing::lacking, "lacks", "");
    add_blocks(Standing::excess, "counts", ", although " + not_seen());
    add_blocks(Standing::other, "counts", "");
    if (counted(Standing::no_number) > 0) {
      add("{} is NaN or infinite in {} pairs, among them {}: whether it counts these pairs is unknown", gradient_.name,
          counted(Standing::no_number), largest(Standing::no_number));
    }
    if (counted(Standing::bent) > 0) {
      add("{} has {} pairs whose ds is not p (dout . v - delta), among them {}", gradient_.name,
          counted(Standing::bent), largest(Standing::bent));
    }
    if (counted(Standing::unclear) > 0) {
      add("{} is wrong in {} pairs, among them {}; there was no time to find out whether these pairs are missing",
          gradient_.name, counted(Standing::unclear), largest(Standing::unclear));
    }
    return std::move(notes_);
  }

 private:
  static constexpr std::array kFaults{Standing::lacking, Standing::excess,    Standing::other,
                                      Standing::bent,    Standing::no_number, Standing::unclear};
  static constexpr std::size_t kMostBlocks = 3;
  // The label of a pair combines its standing (times kOfStanding) with its ratio in tenths.
  static constexpr std::int32_t kTenths = 10;
  static constexpr std::int32_t kOfStanding = 1 << 24;
  static constexpr std::int32_t kMostTenths = (1 << 22);

  static const float* values_of(const GradientValues& gradient, std::int64_t head) {
    for (const PairValues::HeadClass& one : gradient.values.classes()) {
      if (std::ranges::find(one.heads, head) != one.heads.end()) return one.values.const_data_ptr<float>();
    }
    return nullptr;
  }

  // Results in padding rows may hold anything unless the implementation promises something about them.
  [[nodiscard]] bool judges(const GridRow& row) const {
    return !row.padding || prober_.judged().sharding.judges_padding;
  }

  void judge_query(std::int64_t i) {
    const GridRow& query = prober_.grid().q.row(i);
    // dout is 0 in padding rows unless padding may hold anything, so such queries contribute nothing.
    if (query.padding && prober_.judged().sharding.padding != verify::PaddingFill::nan) return;
    if (!gradient_.of_keys && !judges(query)) return;
    double count = 0;
    std::array<double, 2> mean{};
    for (std::int64_t j = 0; j < keys_; ++j) {
      count += seen(i, j);
      mean[0] += seen(i, j) * key_value(KeyValues::first, j);
      mean[1] += seen(i, j) * key_value(KeyValues::second, j);
    }
    if (std::isnan(count)) return;
    for (double& one : mean) one /= std::max(count, 1.0);
    bool bent = false;
    for (std::int64_t j = 0; j < keys_; ++j) {
      if (gradient_.of_keys && !judges(prober_.grid().kv.row(j))) continue;
      const Standing standing = seen(i, j) > 0 ? standing_of(share(i, j, 0, KeyValues::first, count, mean[0]),
                                                             share(i, j, 1, KeyValues::second, count, mean[1]),
                                                             gradient_.of_scores, agreement_)
                                               : standing_of_unseen(i, j, count);
      bent = bent || standing == Standing::bent;
      ++counts_.at(static_cast<std::size_t>(standing));
      const bool is_told = seen(i, j) > 0 || standing == Standing::excess || standing == Standing::no_number;
      labels_.at(i, j) = is_told ? label(standing) : 0;
    }
    if (bent) bend(i);
  }

  // If ds of a query is wrong for some keys, that may also be why it is 0 or has another size for other keys.
  void bend(std::int64_t i) {
    for (std::int64_t j = 0; j < keys_; ++j) {
      for (const Standing doubtful : {Standing::lacking, Standing::other}) {
        if (!is_of(labels_.at(i, j), doubtful)) continue;
        --counts_.at(static_cast<std::size_t>(doubtful));
        ++counts_.at(static_cast<std::size_t>(Standing::bent));
        labels_.at(i, j) = label(Standing::bent);
      }
    }
  }

  DueShare share(std::int64_t i, std::int64_t j, std::size_t question, KeyValues choice, double count, double mean) {
    // The smallest due, in units of p, that can be told from 0.
    constexpr double kLeastDue = 0.5;
    DueShare found;
    found.asked = (gradient_.of_keys ? i : j) < asked_.at(question);
    if (!found.asked) return found;
    const double due = due_of(gradient_.of_scores, key_value(choice, j), mean);
    found.tells = std::abs(due) >= kLeastDue;
    const double value = values_.at(question)[i * keys_ + j];
    found.finite = std::isfinite(value);
    if (found.tells) found.ratio = value / (due * seen(i, j) / count);
    if (question == 0) ratio_ = found.ratio;
    return found;
  }

  Standing standing_of_unseen(std::int64_t i, std::int64_t j, double count) const {
    constexpr double kNoise = 1e-3;
    if ((gradient_.of_keys ? i : j) >= asked_[0]) return Standing::not_told;
    const double value = values_[0][i * keys_ + j];
    if (!std::isfinite(value)) return Standing::no_number;
    // A pair that was not seen contributes exactly 0 with one-hot codes.
    return std::abs(value) <= kNoise / std::max(count, 1.0) ? Standing::not_told : Standing::excess;
  }

  std::int32_t label(Standing standing) {
    if (standing == Standing::right) note_ratio();
    if (standing == Standing::right) return 0;
    std::int32_t tenths = 0;
    if (standing == Standing::other) {
      note_ratio();
      const double most = static_cast<double>(kMostTenths) / kTenths;
      tenths = static_cast<std::int32_t>(std::lround(std::clamp(ratio_, -most, most) * kTenths));
    }
    return static_cast<std::int32_t>(standing) * kOfStanding + tenths;
  }
  static bool is_of(std::int32_t label, Standing standing) {
    return label != 0 && (label + kOfStanding / 2) / kOfStanding == static_cast<std::int32_t>(standing);
  }
  static std::string counts_text(std::int32_t label) {
    const std::int32_t tenths = label - static_cast<std::int32_t>(Standing::other) * kOfStanding;
    const double ratio = static_cast<double>(tenths) / kTenths;
    const bool is_number = ratio >= 2 && std::abs(ratio - std::round(ratio)) < 1.5 / kTenths;
    return is_number ? " " + times_text(std::lround(ratio)) : fmt::format(" {:.1f} times", ratio);
  }

  void note_ratio() {
    least_ratio_ = std::min(least_ratio_, ratio_);
    most_ratio_ = std::max(most_ratio_, ratio_);
  }
  // Returns the ratio if it is the same for all pairs and not 1.
  [[nodiscard]] std::optional<double> common_factor() const {
    if (counted(Standing::other) == 0 || counted(Standing::right) > 0) return std::nullopt;
    for (const Standing fault : kFaults) {
      if (fault != Standing::other && counted(fault) > 0) return std::nullopt;
    }
    if (!(least_ratio_ > 0) || !(most_ratio_ <= (1 + kAbsent) * least_ratio_)) return std::nullopt;
    return (least_ratio_ + most_ratio_) / 2;
  }

  // Names the pairs of ranks between which nothing was contributed.
  [[nodiscard]] std::vector<std::string> apart() {
    return ranks_apart(
        prober_.grid(),
        [&](std::int64_t i, std::int64_t j) { return seen(i, j) > 0 && !is_of(labels_.at(i, j), Standing::not_told); },
        [&](std::int64_t i, std::int64_t j) { return is_of(labels_.at(i, j), Standing::lacking); });
  }

  [[nodiscard]] std::vector<PairBlock> blocks(Standing standing, std::size_t most) const {
    PairLabels of_one = labels_;
    for (std::int32_t& label : of_one.labels) label = is_of(label, standing) ? label : 0;
    return largest_blocks(std::move(of_one), most);
  }
  [[nodiscard]] std::string queries(const PairBlock& block) const {
    return queries_text(prober_.grid().q, {block.q_first, block.q_last});
  }
  [[nodiscard]] std::string keys(const PairBlock& block) const {
    return keys_text(prober_.grid().kv, {block.kv_first, block.kv_last}, prober_.grid().q.row(block.q_first).sequence);
  }
  [[nodiscard]] std::string largest(Standing standing) const {
    const PairBlock block = blocks(standing, 1).front();
    return fmt::format("{} and {}", queries(block), keys(block));
  }

  void add_blocks(Standing standing, std::string_view verb, const std::string& ending) {
    if (counted(standing) == 0) return;
    for (const PairBlock& block : blocks(standing, kMostBlocks)) {
      const std::string times = standing == Standing::other ? counts_text(block.label) : "";
      add("{} of {} {} {}{}{}", gradient_.name, gradient_.of_keys ? keys(block) : queries(block), verb,
          gradient_.of_keys ? queries(block) : keys(block), times, ending);
    }
  }

  [[nodiscard]] std::string not_seen() const {
    const std::string_view not_so = measure_.is_observed ? "did not see" : "should not see";
    return fmt::format("the queries {} the keys", not_so);
  }

  template <typename... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    std::string prefix;
    if (gradient_.values.classes().size() > 1) {
      prefix = fmt::format("head{} {}: ", heads_.heads.size() == 1 ? "" : "s", numbers_text(heads_.heads));
    }
    notes_.push_back(prefix + fmt::format(format, std::forward<Arguments>(arguments)...));
  }

  [[nodiscard]] double seen(std::int64_t i, std::int64_t j) const { return seen_[i * keys_ + j]; }
  [[nodiscard]] std::int64_t counted(Standing standing) const { return counts_.at(static_cast<std::size_t>(standing)); }

  const Prober& prober_;
  const GradientValues& gradient_;
  const PairValues::HeadClass& heads_;
  const GradientMeasure& measure_;
  const double* seen_;
  std::int64_t keys_;
  double agreement_;
  PairLabels labels_;
  std::array<const float*, 2> values_{};  // by choice of g
  std::array<std::int64_t, 2> asked_{};
  std::array<std::int64_t, kStandings> counts_{};
  double ratio_ = 0;  // of the pair that is being judged
  double least_ratio_ = std::numeric_limits<double>::infinity();
  double most_ratio_ = -std::numeric_limits<double>::infinity();
  std::vector<std::string> notes_;
};

}  // namespace

GradientReading read_gradient(const Prober& prober, const GradientValues& gradient, const GradientValues* second,
                              const GradientMeasure& measure) {
  GradientReading reading;
  if (gradient.asked == 0) {
    reading.notes.push_back(fmt::format("there was no time to probe which pairs {} counts", gradient.name));
    return reading;
  }
  if (gradient.foreign) {
    reading.wrong = true;
    reading.notes.push_back(
        fmt::format("{} holds values in elements that no pair of a query and a key fills: the tensor is not {}, or "
                    "contains something else too",
                    gradient.name, gradient.name));
    return reading;
  }
  for (const PairValues::HeadClass& heads : gradient.values.classes()) {
    GradientJudge judge(prober, gradient, heads, second, measure);
    if (!judge.judge()) continue;
    reading.wrong = true;
    for (std::string& note : judge.notes()) reading.notes.push_back(std::move(note));
  }
  if (reading.notes.size() > kMostNotes) {
    const std::size_t more = reading.notes.size() - kMostNotes;
    reading.notes.resize(kMostNotes);
    reading.notes.push_back(fmt::format("{}: {} more sentences like these", gradient.name, more));
  }
  if (!gradient.values.unread().empty()) {
    reading.notes.push_back(fmt::format("{} of heads {} was not examined: too many heads differ", gradient.name,
                                        numbers_text(gradient.values.unread())));
  }
  if (gradient.asked < gradient.to_ask) {
    reading.notes.push_back(fmt::format("{} was probed for {} of {} {}: there was no time for the others",
                                        gradient.name, gradient.asked, gradient.to_ask,
                                        gradient.of_keys ? "queries" : "keys"));
  }
  return reading;
}

}  // namespace cp_pool::diagnosis
