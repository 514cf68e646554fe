// Which queries reached the gradients of each key, and which keys those of each query.
//
// With q = 0, dv of a key is the sum of p * dout over the queries that saw it: one-hot dout, a block of queries a step,
// shows them. dq of a query is the sum of ds * k: one-hot K shows the keys. ds = p * (dout . v - delta), where every
// query has the same dout and every key a value of its own, g: ds = p * (g - mean of g over the keys seen). With q = 0
// dk is 0 for everyone, so it is asked with K = 0 and one-hot q.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/pair_values.h"
#include "cp_core/diagnosis/prober.h"

namespace cp_pool::diagnosis {

// What a gradient has of each pair: p of dv, ds of dq and dk.
struct GradientValues {
  std::string_view name;        // "dq"
  bool of_keys = true;          // a gradient of keys, which queries reach
  bool of_scores = true;        // has ds
  PairValues values;
  std::int64_t asked = 0;       // the first so many keys (dq), or queries (dk, dv)
  std::int64_t to_ask = 0;
};

struct Gradients {
  std::vector<GradientValues> all;
  std::string why_not;  // nothing can be read of them, as a sentence; empty if it can
};

// Collective; the same on every rank.
Gradients ask_gradients(Prober& prober, const AskedCase& asked);

// The value g of a key of the grid, in which neighbours differ.
double key_value(std::int64_t key);

struct GradientReading {
  bool wrong = false;
  std::vector<std::string> notes;  // sentences
};

// seen: fp64 [q, kv], how often each query saw each key, by which the gradients are judged; rows with NaN are not.
// sees: what the seen pairs are called in sentences, "saw" or "should see".
GradientReading read_gradient(const Prober& prober, const GradientValues& gradient, const at::Tensor& seen,
                              std::string_view sees);

}  // namespace cp_pool::diagnosis
