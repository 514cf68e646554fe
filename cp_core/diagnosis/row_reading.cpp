#include "cp_core/diagnosis/row_reading.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "cp_core/verify/canonical.h"

namespace cp_pool::diagnosis {
namespace {

// A key weighs nothing if it weighs so much less than one that is seen.
constexpr double kWeighsNothing = 1e-4;

struct WeighedRow {
  double sum = 0;
  double largest = 0;   // in size
  double smallest = 0;  // of those that are not nothing
  std::int64_t seen = 0;
  bool finite = true;
  bool negative = false;

  // All keys that are seen weigh the same.
  [[nodiscard]] bool equal(double tolerance) const { return largest <= smallest * (1 + 2 * tolerance); }
};

WeighedRow weigh(std::span<const float> weights) {
  WeighedRow found;
  for (const double weight : weights) {
    found.finite = found.finite && std::isfinite(weight);
    found.sum += weight;
    found.largest = std::max(found.largest, std::abs(weight));
  }
  if (!found.finite) return found;
  found.smallest = found.largest;
  for (const double weight : weights) {
    if (std::abs(weight) <= kWeighsNothing * found.largest) continue;
    ++found.seen;
    found.negative = found.negative || weight < 0;
    found.smallest = std::min(found.smallest, std::abs(weight));
  }
  return found;
}

// Whether these times can be told to be a whole number.
bool is_number(double times, double tolerance) {
  if (times <= kWeighsNothing) return times >= -kWeighsNothing;
  const double number = std::round(times);
  return number >= 1 && std::abs(times - number) <= tolerance * number && 2 * tolerance * number < 1;
}

// Fills times with weights * factor, as whole numbers if all are.
bool fill_numbers(std::span<const float> weights, double factor, double tolerance, std::span<double> times) {
  bool numbers = true;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    times[i] = weights[i] * factor;
    numbers = numbers && is_number(times[i], tolerance);
  }
  if (!numbers) return false;
  for (double& one : times) one = one <= kWeighsNothing ? 0 : std::round(one);
  return true;
}

double sum_of(std::span<const double> times) {
  return std::accumulate(times.begin(), times.end(), 0.0);
}

}  // namespace

RowReading read_row(std::span<const float> weights, std::optional<double> lse, bool whole, double tolerance,
                    std::span<double> times) {
  RowReading reading;
  const auto weighted = [&](double factor) {
    for (std::size_t i = 0; i < weights.size(); ++i) times[i] = weights[i] * factor;
    reading.kind = RowReading::Kind::weights;
    return reading;
  };
  const auto unknown = [&] {
    std::ranges::fill(times, std::numeric_limits<double>::quiet_NaN());
    reading.kind = RowReading::Kind::unknown;
    return reading;
  };
  const WeighedRow found = weigh(weights);
  if (!found.finite) return unknown();
  const double counted = lse ? std::exp(*lse) : 0;
  const bool lse_counts = lse && std::isfinite(counted);
  if (found.largest == 0) {
    std::ranges::fill(times, 0.0);
    reading.lse_is_wrong = lse && !lse_counts;
    if (whole && lse_counts) reading.more_in_lse = counted;
    return reading;
  }
  if (lse_counts && fill_numbers(weights, counted, tolerance, times)) {
    constexpr double kLeastOfAKey = 0.25;
    constexpr double kRoundingOfLse = 1e-3;
    const double more = counted - sum_of(times);
    const double rounding = kLeastOfAKey + kRoundingOfLse * counted;
    // More keys in out than in lse: out is no mean of values.
    if (more < -rounding) return weighted(counted);
    if (whole && more > rounding) reading.more_in_lse = more;
    return reading;
  }
  if (lse && !whole) return unknown();  // which of the two is wrong cannot be told
  const bool is_mean = whole && std::abs(found.sum - 1) <= tolerance;
  // So that 1 is the mean of the keys seen, or else what a key weighs that is seen once.
  const double factor = is_mean || !lse_counts || counted == 0 ? static_cast<double>(found.seen) : counted;
  reading.lse_is_wrong = lse && is_mean && !found.negative && found.equal(tolerance);
  if (found.negative) return weighted(factor);
  // Without lse, numbers up to a factor. With one that contradicts, unequal weights may come of a wrong merge, and only
  // equal ones say which keys were seen.
  const bool readable = lse ? reading.lse_is_wrong : is_mean || !whole;
  if (readable && fill_numbers(weights, 1 / found.smallest, 2 * tolerance, times)) return reading;
  return weighted(factor);
}

double weight_tolerance(DType dtype, int ranks) {
  constexpr double kOfFp32 = 0x1p-9;
  const double roundings = 4.0 + ranks;
  return std::max(kOfFp32, roundings * verify::unit_roundoff(dtype));
}

}  // namespace cp_pool::diagnosis
