// Asks which queries contribute to the gradients of each key, and which keys to the gradient of each query.
// gradient_reading.h interprets the answers.
//
// With q = 0, dv of a key is the sum of p * dout over the queries that saw it, so one-hot dout for one block of queries
// per step shows them. dq of a query is scale times the sum of ds * k, so one-hot K shows the keys. ds = p * (dout . v
// - delta), where every query has the same dout and every key a value of its own, g: ds = p * (g - mean of g over the
// keys seen). With q = 0, dk is 0 for every key, so it is asked for with K = 0 and one-hot q.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cp_core/diagnosis/pair_values.h"
#include "cp_core/diagnosis/prober.h"

namespace cp_pool::diagnosis {

// Two choices of g. A pair that is counted r times contributes r times its due with both choices; a pair whose ds is
// wrong does not.
enum class KeyValues : std::uint8_t { first, second };

// Returns g of a key of the grid: a small whole number that usually differs between neighbouring keys.
double key_value(KeyValues choice, std::int64_t key);

// What each pair contributes to one gradient: p to dv, ds to dq and dk.
struct GradientValues {
  std::string_view name;  // "dq"
  bool of_keys = true;    // a gradient of keys (dk, dv); else of queries (dq)
  bool of_scores = true;  // is made of ds (dq, dk); else of p (dv)
  PairValues values;
  std::int64_t asked = 0;   // how many keys (dq) or queries (dk, dv), from the first on, there was time to ask for
  std::int64_t to_ask = 0;  // how many there are
  bool foreign = false;     // the gradient has nonzero elements that no pair can have contributed to
};

struct Gradients {
  std::vector<GradientValues> all;
  std::string why_not;  // why nothing could be read, as a sentence; empty if something could
};

// Asks for dq and dk, and with the first choice of g also for dv. Collective; the same on every rank.
Gradients ask_gradients(Prober& prober, const AskedCase& asked, KeyValues choice);

}  // namespace cp_pool::diagnosis
