#include "cp_core/diagnosis/row_reading.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "cp_core/verify/canonical.h"

namespace cp_pool::diagnosis {
namespace {

// A key whose weight, relative to that of a seen key, is below this was not seen.
constexpr double kWeighsNothing = 1e-4;

struct WeighedRow {
  double sum = 0;
  double largest = 0;   // largest absolute value
  double smallest = 0;  // smallest weight of a seen key
  std::int64_t seen = 0;
  bool finite = true;
  bool negative = false;

  // Whether all keys seen have the same weight.
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

// Whether the value is a whole number, and small enough to be told from the next one.
bool is_number(double times, double tolerance) {
  if (times <= kWeighsNothing) return times >= -kWeighsNothing;
  const double number = std::round(times);
  return number >= 1 && std::abs(times - number) <= tolerance * number && 2 * tolerance * number < 1;
}

// Fills times with weights * factor. Returns whether all are whole numbers, and if so rounds them.
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

// The tolerance on the number of keys that lse stands for.
double rounding_of(double keys) {
  constexpr double kPartOfAKey = 0.25;
  constexpr double kRoundingOfLse = 1e-3;
  return kPartOfAKey + kRoundingOfLse * keys;
}

double sum_of(std::span<const double> times) {
  return std::accumulate(times.begin(), times.end(), 0.0);
}

}  // namespace

RowReading read_row(std::span<const float> weights, std::optional<double> lse, bool whole, double tolerance,
                    std::span<double> times) {
  RowReading reading;
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
    if (whole) reading.lse_is_wrong = lse && !lse_counts;
    return reading;
  }
  if (found.negative) {
    reading.negative = true;
    return unknown();
  }
  const bool is_mean = std::abs(found.sum - 1) <= tolerance;
  if (lse_counts && fill_numbers(weights, counted, tolerance, times)) {
    const double number = sum_of(times);
    const double more = counted - number;
    // lse contradicts out if it counts fewer keys, or none although out shows some.
    const bool counts_none = number == 0 && found.largest > kWeighsNothing;
    if (!counts_none && more >= -rounding_of(number)) {
      if (!whole || more > rounding_of(number)) return reading;
      const double most = std::ranges::max(times);
      reading.only_lse_counts = most > 1 && most * static_cast<double>(found.seen) == number;
      reading.lse_is_proved = is_mean && number > 1 && !reading.only_lse_counts;
      return reading;
    }
  }
  if (lse && !whole) return unknown();  // weights and lse disagree, and which is wrong cannot be told
  if (found.equal(tolerance)) {
    for (std::size_t i = 0; i < times.size(); ++i) times[i] = weights[i] >= found.smallest ? 1 : 0;
    const auto seen = static_cast<double>(found.seen);
    reading.lse_is_wrong = lse && !(std::abs(counted - seen) <= rounding_of(seen));
    return reading;
  }
  // Without lse, the numbers are known up to a factor. With an lse that contradicts them, unequal weights may result
  // from a wrong merge.
  const bool readable = !lse && (is_mean || !whole);
  if (readable && fill_numbers(weights, 1 / found.smallest, 2 * tolerance, times)) return reading;
  const bool counts = (whole && is_mean) || !lse_counts || counted == 0;
  const double factor = counts ? static_cast<double>(found.seen) : counted;
  for (std::size_t i = 0; i < weights.size(); ++i) times[i] = weights[i] * factor;
  reading.kind = RowReading::Kind::weights;
  return reading;
}

double weight_tolerance(DType dtype, int ranks) {
  constexpr double kOfFp32 = 0x1p-9;
  const double roundings = 4.0 + ranks;
  return std::max(kOfFp32, roundings * verify::unit_roundoff(dtype));
}

}  // namespace cp_pool::diagnosis
