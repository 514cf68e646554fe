// Which queries reached the gradients of each key, and which keys those of each query: the questions.
//
// With q = 0, dv of a key is the sum of p * dout over the queries that saw it: one-hot dout, a block of queries a step,
// shows them. dq of a query is scale times the sum of ds * k: one-hot K shows the keys. ds = p * (dout . v - delta),
// where every query has the same dout and every key a value of its own, g: ds = p * (g - mean of g over the keys seen).
// With q = 0 dk is 0 for everyone, so it is asked with K = 0 and one-hot q.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cp_core/diagnosis/pair_values.h"
#include "cp_core/diagnosis/prober.h"

namespace cp_pool::diagnosis {

// Two choices of g. A pair that is counted r times has r times what is due with both; where ds itself is wrong, it has
// not.
enum class KeyValues : std::uint8_t { first, second };

// g of a key of the grid. Small whole numbers, in which keys near each other differ.
double key_value(KeyValues choice, std::int64_t key);

// What a gradient has of each pair: p of dv, ds of dq and dk.
struct GradientValues {
  std::string_view name;  // "dq"
  bool of_keys = true;    // a gradient of keys, which queries reach; else of queries
  bool of_scores = true;  // has ds
  PairValues values;
  std::int64_t asked = 0;  // the first so many keys (dq) or queries (dk, dv); the others were left for want of time
  std::int64_t to_ask = 0;
  bool foreign = false;  // it holds what no pair gives
};

struct Gradients {
  std::vector<GradientValues> all;
  std::string why_not;  // nothing can be read of them, as a sentence; empty if it can
};

// Asks for dq and dk, and with the first choice of g for dv. Collective; the same on every rank.
Gradients ask_gradients(Prober& prober, const AskedCase& asked, KeyValues choice);

}  // namespace cp_pool::diagnosis
