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
  bool negative =
      false;  // only for Kind::unknown: some weight is negative, so out holds something that is no value of V
  // The members below keep their defaults unless the kind is `numbers` and all keys were asked for.
  bool lse_is_wrong = false;  // lse fits no number of keys that the weights allow, so `times` rest on the weights alone
  bool only_lse_counts = false;  // only lse says that all keys seen were seen more than once, equally often
  bool lse_is_proved = false;    // lse is the logarithm of the number of keys that the weights show, which is not 1
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
