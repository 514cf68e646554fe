#include "tests/property/shrink.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "cases/case_json.h"
#include "cases/comm_facts.h"

namespace cp_pool::property {
namespace {

using Lengths = std::vector<std::int64_t>;

// Collects the valid cases that are one step simpler than one case.
class Steps {
 public:
  explicit Steps(const Case& from) : from_(from) {}

  template <typename Change>
  void add(Change&& change) {
    Case simpler = from_;
    change(simpler);
    if (simpler != from_ && !find_problem(simpler)) cases_.push_back(std::move(simpler));
  }

  // To the least value, to a half, and one less: the first is the shortest way, the last always ends at the border.
  template <typename Get>
  void reduce(Get&& get, std::int64_t least, std::int64_t unit = 1) {
    const std::int64_t now = get(from_);
    for (const std::int64_t value : {least, now / 2 / unit * unit, now - unit}) {
      if (value >= least && value < now) add([&](Case& s) { get(s) = value; });
    }
  }

  std::vector<Case> take() { return std::move(cases_); }

 private:
  const Case& from_;
  std::vector<Case> cases_;
};

void drop_features(Steps& steps) {
  steps.add([](Case& s) { s.bias.reset(); });
  steps.add([](Case& s) { s.softmax = SoftmaxType::vanilla; });
  steps.add([](Case& s) { s.softmax = SoftmaxType::off_by_one; });
  steps.add([](Case& s) { s.max_logit = false; });
  steps.add([](Case& s) { s.training = false; });
  steps.add([](Case& s) { s.deterministic = false; });
  steps.add([](Case& s) { s.chunk = 0; });
  steps.add([](Case& s) { s.causal = false; });
  steps.add([](Case& s) { s.window[0] = kInfiniteWindow; });
  steps.add([](Case& s) { s.window[1] = kInfiniteWindow; });
  steps.add([](Case& s) { s.dtype = DType::fp32; });
  steps.add([](Case& s) { s.backend = Backend::math; });
  steps.add([](Case& s) { s.comm = CommType::p2p; });
  steps.add([](Case& s) { s.input_scale = 1; });
  steps.add([](Case& s) { s.strided = false; });
  steps.add([](Case& s) { s.group = 1; });
  steps.add([](Case& s) { s.group = std::min(s.group, 2); });
  steps.add([](Case& s) { s.seed = Case{}.seed; });
}

// What is not replicated divides by 2 * cp_size.
void pad_lengths(Case& c) {
  const std::int64_t multiple = std::int64_t{2} * c.cp_size;
  for (std::int64_t* length : {&c.seqlen_q, &c.seqlen_kv}) {
    *length = c.replicated + (*length - c.replicated + multiple - 1) / multiple * multiple;
  }
}

// Takes tokens away that are replicated, and leaves the others.
void reduce_replicated(Steps& steps, const Case& c) {
  for (const std::int64_t fewer : {c.replicated, c.replicated - c.replicated / 2, std::int64_t{1}}) {
    if (fewer > c.replicated) continue;
    steps.add([fewer](Case& s) {
      s.replicated -= fewer;
      for (std::int64_t* longest : {&s.seqlen_q, &s.seqlen_kv}) *longest -= fewer;
      for (auto* lengths : {&s.seqlens, &s.seqlens_kv}) {
        if (!*lengths) continue;
        for (std::int64_t& length : **lengths) length = std::max<std::int64_t>(length - fewer, 0);
      }
    });
    steps.add([fewer](Case& s) { s.replicated -= fewer; });
  }
}

void simplify_layout(Steps& steps) {
  steps.add([](Case& s) { s.seqlens.reset(); });
  steps.add([](Case& s) { s.seqlens_kv.reset(); });
  steps.add([](Case& s) { s.pad_between_seqs = false; });
  steps.add([](Case& s) {
    s.layout = Layout::bshd;
    s.pad_between_seqs = false;
    s.seqlens.reset();
    s.seqlens_kv.reset();
    pad_lengths(s);
  });
}

void erase_sequence(Case& c, std::size_t b) {
  --c.batch;
  for (auto* lengths : {&c.seqlens, &c.seqlens_kv}) {
    if (*lengths) (*lengths)->erase((*lengths)->begin() + static_cast<std::ptrdiff_t>(b));
  }
}

void reduce_lengths(Steps& steps, const Case& c) {
  if (c.batch > 1) {
    for (std::size_t b = 0; b < static_cast<std::size_t>(c.batch); ++b) {
      steps.add([b](Case& s) { erase_sequence(s, b); });
    }
  }
  const std::int64_t unit = c.pad_between_seqs ? 1 : std::int64_t{2} * c.cp_size;
  steps.add([](Case& s) { s.seqlen_q = s.seqlen_kv = std::min(s.seqlen_q, s.seqlen_kv); });
  steps.reduce([](auto& s) -> auto& { return s.seqlen_q; }, unit, unit);
  steps.reduce([](auto& s) -> auto& { return s.seqlen_kv; }, unit, unit);
  if (c.seqlen_q == c.seqlen_kv && c.seqlen_q > unit) {
    steps.add([unit](Case& s) { s.seqlen_q = s.seqlen_kv = s.seqlen_q - unit; });
  }
  for (std::size_t b = 0; c.seqlens && b < c.seqlens->size(); ++b) {
    steps.reduce([b](auto& s) -> auto& { return s.seqlens.value().at(b); }, 0, unit);
  }
  for (std::size_t b = 0; c.seqlens_kv && b < c.seqlens_kv->size(); ++b) {
    steps.reduce([b](auto& s) -> auto& { return s.seqlens_kv.value().at(b); }, 0, unit);
  }
}

void reduce_sizes(Steps& steps, const Case& c) {
  steps.add([](Case& s) { s.cp_size /= 2; });
  // Any number of ranks has its own multiple of lengths.
  if (c.cp_size > 1) {
    steps.add([](Case& s) {
      s.cp_size -= 1;
      if (!s.pad_between_seqs) pad_lengths(s);
    });
  }
  steps.add([](Case& s) { s.heads = s.kv_heads; });
  steps.add([](Case& s) { s.heads = s.kv_heads = 1; });
  steps.add([](Case& s) { s.heads = s.kv_heads = std::max(2, head_ranks(s)); });
  if (c.heads / c.kv_heads > 2) steps.add([](Case& s) { s.heads = 2 * s.kv_heads; });
  steps.add([](Case& s) { s.head_dim_v = s.head_dim_qk; });
  steps.reduce([](auto& s) -> auto& { return s.head_dim_qk; }, 1);
  steps.reduce([](auto& s) -> auto& { return s.head_dim_v; }, 1);
  if (c.chunk > 0) steps.reduce([](auto& s) -> auto& { return s.chunk; }, 1);
  for (std::size_t side = 0; side < c.window.size(); ++side) {
    if (c.window[side] > 0) steps.reduce([side](auto& s) -> auto& { return s.window[side]; }, 0);
  }
}

std::vector<Case> one_step_simpler(const Case& c) {
  Steps steps(c);
  drop_features(steps);
  reduce_replicated(steps, c);
  simplify_layout(steps);
  reduce_lengths(steps, c);
  reduce_sizes(steps, c);
  return steps.take();
}

// Some steps set one size to another and may go up, from which a later step would come back.
bool is_simpler(const Case& c, const Case& than) {
  const bool gains_a_sink = than.softmax == SoftmaxType::vanilla && c.softmax != SoftmaxType::vanilla;
  return c.heads <= than.heads && c.kv_heads <= than.kv_heads && c.head_dim_v <= than.head_dim_v && !gains_a_sink;
}

}  // namespace

Case shrink(Case failing, const std::function<bool(const Case&)>& fails) {
  for (bool shrunk = true; shrunk;) {
    shrunk = false;
    for (Case& simpler : one_step_simpler(failing)) {
      if (!is_simpler(simpler, failing) || !fails(simpler)) continue;
      failing = std::move(simpler);
      shrunk = true;
      break;
    }
  }
  return failing;
}

}  // namespace cp_pool::property
