#include "cp_core/diagnosis/gradient_probe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <ATen/ops/tensor.h>

namespace cp_pool::diagnosis {
namespace {

using verify::CanonicalInputs;
using verify::Results;

constexpr std::int64_t kMostGradientValues = std::int64_t{1} << 26U;  // the most values kept for each gradient: 256 MiB
constexpr double kHeadsAgree = 0.02;

// The element of v and dout that all keys and queries use; codes are in the other elements. In q and k this element
// stays 0 if the head has another one, so that of dq and dk must stay 0 too, unless they hold more than contributions
// of pairs.
constexpr std::int64_t kCommonElement = 0;

std::int64_t first_code(std::int64_t elements) {
  return elements > 1 ? 1 : 0;
}
std::int64_t codes_in(std::int64_t elements) {
  return elements - first_code(elements);
}

void fill_key_values(at::Tensor& v, KeyValues choice) {
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(v.size(0)));
  for (std::int64_t j = 0; j < v.size(0); ++j) values.push_back(key_value(choice, j));
  v.select(2, kCommonElement).copy_(at::tensor(values, at::kDouble).unsqueeze(1));
}

// Sets 1 in element first_element + s of each row first + s.
void add_one_hot(at::Tensor& rows, std::int64_t first, std::int64_t count, std::int64_t first_element) {
  for (std::int64_t s = 0; s < count; ++s) rows.select(0, first + s).select(1, first_element + s).fill_(1);
}

class GradientProbe {
 public:
  GradientProbe(Prober& prober, const AskedCase& asked, KeyValues choice)
      : prober_(prober),
        asked_(asked),
        choice_(choice),
        queries_(prober.grid().q.size()),
        keys_(prober.grid().kv.size()),
        unit_(std::sqrt(static_cast<double>(asked.c.head_dim_qk))),
        group_(asked.c.heads / asked.c.kv_heads) {}

  Gradients ask() {
    ask_with_q_zero();
    if (found_.why_not.empty()) ask_with_k_zero();
    return std::move(found_);
  }

 private:
  GradientValues values_of(std::string_view name, bool of_keys, bool of_scores) const {
    return {.name = name,
            .of_keys = of_keys,
            .of_scores = of_scores,
            .values = {of_keys ? asked_.c.kv_heads : asked_.c.heads, queries_, keys_, kHeadsAgree, kMostGradientValues},
            .to_ask = of_keys ? queries_ : keys_};
  }

  // Asks for dq and dv.
  void ask_with_q_zero() {
    GradientValues dq = values_of("dq", false, true);
    GradientValues dv = values_of("dv", true, false);
    const std::int64_t dv_elements = choice_ == KeyValues::first ? asked_.c.head_dim_v - 1 : 0;
    CanonicalInputs inputs = prober_.zeros(asked_);
    fill_key_values(inputs.v, choice_);
    bool repeated = choice_ != KeyValues::first || !prober_.promises_bits(asked_);
    while ((dq.asked < keys_ || (dv.asked < queries_ && dv_elements > 0)) && prober_.has_time(Prober::Part::whole)) {
      const std::int64_t keys = std::min(codes_in(asked_.c.head_dim_qk), keys_ - dq.asked);
      const std::int64_t queries = std::min(dv_elements, queries_ - dv.asked);
      inputs.k.zero_();
      add_one_hot(inputs.k, dq.asked, keys, first_code(asked_.c.head_dim_qk));
      inputs.dout.zero_();
      inputs.dout.select(2, kCommonElement).fill_(1);
      add_one_hot(inputs.dout, dv.asked, queries, 1);
      prober_.clear_padding(inputs.dout);
      const Results results = prober_.ask(asked_, inputs, Prober::Part::whole);
      if (!given(results)) return;
      if (!repeated && !repeats(inputs, results)) return;
      repeated = true;
      look_for_others(dq, results.dq);
      if (keys > 0) dq.values.set_keys(dq.asked, results.dq.narrow(2, first_code(results.dq.size(2)), keys).mul(unit_));
      if (queries > 0) dv.values.set_queries(dv.asked, results.dv.narrow(2, 1, queries).div(group_));
      dq.asked += keys;
      dv.asked += queries;
    }
    found_.all.push_back(std::move(dq));
    if (choice_ == KeyValues::first) found_.all.push_back(std::move(dv));
  }

  // Asks for dk.
  void ask_with_k_zero() {
    GradientValues dk = values_of("dk", true, true);
    CanonicalInputs inputs = prober_.zeros(asked_);
    fill_key_values(inputs.v, choice_);
    inputs.dout.select(2, kCommonElement).fill_(1);
    prober_.clear_padding(inputs.dout);
    while (dk.asked < queries_ && prober_.has_time(Prober::Part::whole)) {
      const std::int64_t queries = std::min(codes_in(asked_.c.head_dim_qk), queries_ - dk.asked);
      inputs.q.zero_();
      add_one_hot(inputs.q, dk.asked, queries, first_code(asked_.c.head_dim_qk));
      const Results results = prober_.ask(asked_, inputs, Prober::Part::whole);
      if (!given(results)) return;
      look_for_others(dk, results.dk);
      dk.values.set_queries(
          dk.asked,
          results.dk.narrow(2, first_code(results.dk.size(2)), queries).mul(unit_ / static_cast<double>(group_)));
      dk.asked += queries;
    }
    found_.all.push_back(std::move(dk));
  }

  // Sets `foreign` if the element of dq or dk that should stay 0 does not.
  void look_for_others(GradientValues& gradient, const at::Tensor& result) const {
    if (first_code(result.size(2)) == kCommonElement) return;
    constexpr double kRounding = 1e-4;
    const GridAxis& axis = gradient.of_keys ? prober_.grid().kv : prober_.grid().q;
    const at::Tensor largest = result.select(2, kCommonElement).abs().amax({1});
    for (std::int64_t i = 0; i < axis.size(); ++i) {
      if (axis.row(i).padding && !prober_.judged().sharding.judges_padding) continue;
      gradient.foreign = gradient.foreign || largest[i].item<double>() > kRounding;
    }
  }

  bool given(const Results& results) {
    if (results.dq.defined() && results.dk.defined() && results.dv.defined()) return true;
    found_.why_not = "a rank returned no dq, dk or dv, or one of the wrong shape";
    return false;
  }

  bool repeats(const CanonicalInputs& inputs, const Results& results) {
    const Results again = prober_.ask(asked_, inputs, Prober::Part::whole);
    bool same = true;
    for (const auto member : {&Results::dq, &Results::dk, &Results::dv}) {
      same = same && same_bits(results.*member, again.*member);
    }
    if (prober_.agreed(same)) return true;
    found_.why_not = "the gradients had different bits when the same step was repeated";
    return false;
  }

  Prober& prober_;
  const AskedCase& asked_;
  KeyValues choice_;
  std::int64_t queries_;
  std::int64_t keys_;
  double unit_;  // 1 / scale
  std::int64_t group_;
  Gradients found_;
};

}  // namespace

double key_value(KeyValues choice, std::int64_t key) {
  // Four values far from their mean, in a pseudorandom order, so that there is no regular pattern among neighbours or
  // among every second or fourth key. The second choice has another mean.
  constexpr std::array kValues{-3.0, -2.0, 2.0, 3.0};
  constexpr double kSecondMean = 4;
  constexpr std::uint64_t kFirstMultiplier = 0x9E3779B97F4A7C15;
  constexpr std::uint64_t kSecondMultiplier = 0xD1B54A32D192ED03;
  constexpr unsigned kTopBits = 62;
  const bool is_first = choice == KeyValues::first;
  const std::uint64_t bits = (static_cast<std::uint64_t>(key) + 1) * (is_first ? kFirstMultiplier : kSecondMultiplier);
  return kValues.at(bits >> kTopBits) + (is_first ? 0 : kSecondMean);
}

Gradients ask_gradients(Prober& prober, const AskedCase& asked, KeyValues choice) {
  return GradientProbe(prober, asked, choice).ask();
}

}  // namespace cp_pool::diagnosis
