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
    unknown,  // NaN or infinite; or lse contradicts and not all keys were asked
  };
  Kind kind = Kind::numbers;
  // lse is there, is finite, and counts so many keys more than `times` do. Not 0 only for Kind::numbers of a whole row.
  double more_in_lse = 0;
  // lse is there and cannot be the logarithm of any number that the weights allow. The reading rests on the weights
  // alone.
  bool lse_is_wrong = false;
};

// weights: of the keys that were asked, one after the other. lse: empty if none is given. whole: all keys were asked.
// tolerance: weight_tolerance. Fills times, of the same length. Without lse, times are known up to a factor: the
// smallest is 1.
RowReading read_row(std::span<const float> weights, std::optional<double> lse, bool whole, double tolerance,
                    std::span<double> times);

// The relative rounding error that the weight of a key may have: probabilities, outputs, and what is merged at each rank
// may be rounded to the dtype. fp32: what fast exponentials and TF32 leave.
double weight_tolerance(DType dtype, int ranks);

}  // namespace cp_pool::diagnosis
