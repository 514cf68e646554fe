// What the weights of one query say about the keys that it saw. With q = 0 all scores are equal: a key that is seen m
// times among N has the weight m / N, and exp(lse) is N.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "cases/case.h"

namespace cp_pool::diagnosis {

struct RowReading {
  enum class Kind {
    numbers,  // times are whole numbers
    weights,  // they are not: 1 is what a key weighs that is seen once, by lse, or else the mean of the keys seen
    unknown,  // not finite, or negative; or lse contradicts and not all keys were asked
  };
  Kind kind = Kind::numbers;
  // Of Kind::unknown: weights are negative, so out holds what is no value of a key. If that is -1 for some of the keys
  // and right for the others: for how many keys.
  bool negative = false;
  double keys_of_minus_one = 0;
  // The rest is 0, 1 or false unless the kind is numbers and all keys were asked.
  double more_in_lse = 0;        // lse counts so many keys more than `times` do
  double sum = 1;                // of the weights, if it is neither 1 nor explained by more_in_lse: out is no mean
  bool lse_is_wrong = false;     // no keys that the weights allow are so many; times rest on the weights alone
  bool only_lse_counts = false;  // all keys seen were seen equally often, and more than once, as lse alone says
  bool lse_is_proved = false;    // it is the logarithm of the number of keys that the weights show, and that is not 1
  double lse_error = 0;          // how far lse is from the logarithm of the number of keys, beyond its rounding in fp32
};

// weights: of the keys that were asked, one after the other. lse: empty if none is given. whole: all keys were asked.
// tolerance: weight_tolerance. Fills times, of the same length. Without lse, times are known up to a factor: the
// smallest is 1.
RowReading read_row(std::span<const float> weights, std::optional<double> lse, bool whole, double tolerance,
                    std::span<double> times);

// The relative rounding error that the weight of a key may have: probabilities, outputs, and what is merged at each
// rank may be rounded to the dtype. fp32: what fast exponentials and TF32 leave.
double weight_tolerance(DType dtype, int ranks);

}  // namespace cp_pool::diagnosis
