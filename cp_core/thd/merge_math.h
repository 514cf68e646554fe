// The functions that merging needs for each row and head, in plain double arithmetic of a fixed order, so that a CPU
// and a GPU get the same bits. They are accurate to 1e-14, far better than the fp32 results need.
//
// Sources that include this must be compiled without contraction of a * b + c (-ffp-contract=off, -fmad=false).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "cp_core/cuda/device_code.h"

#ifdef __FAST_MATH__
#error "merge_math.h needs IEEE arithmetic"
#endif

namespace cp_pool::merge_math {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// e^x; 0 below -708, where fp32 is 0 already; infinity above 709.
CP_POOL_DEVICE_CODE inline double exponential(double x) {
  if (!(x > -708.0)) return x != x ? x : 0.0;
  if (x > 709.0) return std::numeric_limits<double>::infinity();
  // x = k ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^52 rounds to an integer. ln 2 is split into two parts, so that
  // k times the first is exact (the split of fdlibm's e_exp.c).
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kLn2High = 0x1.62e42feep-1;
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr double kRound = 0x1.8p52;
  const double k = (x * kLog2E + kRound) - kRound;
  const double r = (x - k * kLn2High) - k * kLn2Low;
  // Taylor series up to r^12 / 12!.
  double p = 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const auto exponent = static_cast<std::int64_t>(k) + 1023;
  return p * std::bit_cast<double>(exponent << 52U);
}

// log(1 + y) for y in [0, 1], as 2 atanh(y / (2 + y)), which is accurate near 0, too.
CP_POOL_DEVICE_CODE inline double log_one_plus(double y) {
  const double s = y / (2.0 + y);
  const double z = s * s;  // at most 1/9, so the series can end at z^13
  double p = 1.0 / 27.0;
  p = p * z + 1.0 / 25.0;
  p = p * z + 1.0 / 23.0;
  p = p * z + 1.0 / 21.0;
  p = p * z + 1.0 / 19.0;
  p = p * z + 1.0 / 17.0;
  p = p * z + 1.0 / 15.0;
  p = p * z + 1.0 / 13.0;
  p = p * z + 1.0 / 11.0;
  p = p * z + 1.0 / 9.0;
  p = p * z + 1.0 / 7.0;
  p = p * z + 1.0 / 5.0;
  p = p * z + 1.0 / 3.0;
  p = p * z + 1.0;
  return 2.0 * s * p;
}

// log(e^a + e^b)
CP_POOL_DEVICE_CODE inline double log_add_exp(float a, float b) {
  const double low = b < a ? b : a;
  const double high = b < a ? a : b;
  if (low == -std::numeric_limits<double>::infinity()) return high;
  return high + log_one_plus(exponential(low - high));
}

// e^(lse - total); 0 for a part without keys.
CP_POOL_DEVICE_CODE inline float weight(float lse, double total) {
  return lse == kMinusInfinity ? 0.0F : static_cast<float>(exponential(static_cast<double>(lse) - total));
}

// The contribution of one row to the sink's gradient, with the opposite sign.
CP_POOL_DEVICE_CODE inline double sink_term(float sink, float lse, float delta) {
  return exponential(static_cast<double>(sink) - static_cast<double>(lse)) * static_cast<double>(delta);
}

// The sink's gradient adds the rows of the given ranges in a fixed order, however many threads do it. It takes
// kSinkRanges ranges at a time. Row i of these is added to lane i % kSinkLanes; then the upper half of the lanes is
// added to the lower half until one lane is left.
inline constexpr int kSinkRanges = 1024;
inline constexpr int kSinkLanes = 1024;

}  // namespace cp_pool::merge_math
