// Derives the keys that one query saw from their weights. With q = 0 all scores are equal, so a key that is counted m
// times among N has the weight m / N, and exp(lse) is N.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "cases/case.h"

namespace cp_pool::diagnosis {

struct RowReading {
  enum class Kind {
    numbers,  // `times` are whole numbers
    weights,  // they are not; 1 is the weight of a key seen once, by lse, or else the mean weight of the keys seen
    unknown,  // weights are not finite, or negative, or not all keys were asked for and lse contradicts the weights
  };
  Kind kind = Kind::numbers;
  // Only for Kind::unknown. Some weight is negative, so out holds something that is no value of V. keys_of_minus_one:
  // how many keys had -1 for their value, if that explains the weights; else 0.
  bool negative = false;
  double keys_of_minus_one = 0;
  // The members below keep their defaults unless the kind is `numbers` and all keys were asked for.
  double more_in_lse = 0;     // how many keys more lse counts than `times`
  double sum = 1;             // the sum of the weights, if neither 1 nor explained by more_in_lse: out is no mean
  bool lse_is_wrong = false;  // lse fits no number of keys that the weights allow, so `times` rest on the weights alone
  bool only_lse_counts = false;  // only lse says that all keys seen were seen more than once, equally often
  bool lse_is_proved = false;    // lse is the logarithm of the number of keys that the weights show, which is not 1
  double lse_error = 0;  // how far lse is from the logarithm of the number of keys, if that is beyond its fp32 rounding
};

// weights: those of the keys that were asked for, in order. lse: empty if the implementation returns none. whole: all
// keys were asked for. tolerance: see weight_tolerance. Fills `times`, which has the length of `weights`. Without lse,
// times are known only up to a factor, which is chosen so that the smallest is 1.
RowReading read_row(std::span<const float> weights, std::optional<double> lse, bool whole, double tolerance,
                    std::span<double> times);

// The relative error that rounding may leave in the weight of a key: probabilities, outputs and the partial results of
// each rank may be rounded to the dtype. In fp32 it allows for fast exponentials and TF32.
double weight_tolerance(DType dtype, int ranks);

}  // namespace cp_pool::diagnosis
