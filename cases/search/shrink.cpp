#include "cases/search/shrink.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <utility>

#include "cases/case_json.h"
#include "cases/comm_facts.h"
#include "cases/dual_chunk.h"
#include "cases/lengths.h"

namespace cp_pool::search {
namespace {

using Lengths = std::vector<std::int64_t>;

// Leaves out the groups, ranks and lengths that the case no longer has, and numbers the other ranks anew.
void fit_groups(Case& c) {
  if (c.group_lengths && c.seqlens && c.group > 1) {
    c.group_lengths->resize(static_cast<std::size_t>(c.group));
    c.group_lengths->front() = *c.seqlens;
  } else {
    c.group_lengths.reset();
  }
  if (c.group == 1) c.group_ranks.reset();
  if (!c.group_ranks) return;
  c.group_ranks->resize(static_cast<std::size_t>(c.group));
  std::set<int> kept;
  for (std::vector<int>& group : *c.group_ranks) {
    group.resize(std::min(group.size(), static_cast<std::size_t>(c.cp_size)));
    kept.insert(group.begin(), group.end());
  }
  for (std::vector<int>& group : *c.group_ranks) {
    for (int& rank : group) rank = static_cast<int>(std::distance(kept.begin(), kept.find(rank)));
  }
}

// Leaves out what is beyond the longest sequence.
void fit_mask(Case& c) {
  for (MaskSlice& slice : c.mask) {
    slice.queries.end = std::min(slice.queries.end, c.seqlen_q);
    slice.keys.end = std::min(slice.keys.end, c.seqlen_kv);
  }
  std::erase_if(c.mask, std::mem_fn(&MaskSlice::is_empty));
}

// Collects cases that are one step simpler than one case.
class Steps {
 public:
  explicit Steps(const Case& from) : from_(from) {}

  template <typename Change>
  void add(Change&& change) {
    Case simpler = from_;
    change(simpler);
    fit_groups(simpler);
    fit_mask(simpler);
    if (inner_ranks(simpler) == 0) simpler.inner = kPair;
    cases_.push_back(std::move(simpler));
  }

  // Adds steps to the least value, to half the value, and to one unit less. The first is the shortest way; the last
  // always ends at the border between failing and passing. Several members stay equal.
  template <typename... Member>
  void reduce(std::int64_t least, std::int64_t unit, Member... members) {
    const std::int64_t now = std::max({std::invoke(members, from_)...});
    for (const std::int64_t value : {least, now / 2 / unit * unit, now - unit}) {
      if (value >= least && value < now) add([&](Case& s) { ((std::invoke(members, s) = value), ...); });
    }
  }

  std::vector<Case> take() { return std::move(cases_); }

 private:
  const Case& from_;
  std::vector<Case> cases_;
};

std::int64_t rounded_up(std::int64_t length, std::int64_t multiple) {
  return (length + multiple - 1) / multiple * multiple;
}

// Replaces every explicit valid length by the result of the function.
template <typename Function>
void for_each_length(Case& c, Function&& function) {
  for (auto* lengths : {&c.seqlens, &c.seqlens_kv}) {
    if (!*lengths) continue;
    for (std::int64_t& length : **lengths) length = function(length);
  }
}

// Without padding, rounds every valid and padded length up, so that the part that is not replicated is a multiple of 2
// * cp_size.
void round_lengths(Case& c) {
  if (c.pad_between_seqs) return;
  const std::int64_t multiple = dual_chunks(c.cp_size);
  const auto round = [multiple](std::int64_t replicated, std::int64_t& longest, std::optional<Lengths>& lengths) {
    const auto rounded = [=](std::int64_t length) {
      const std::int64_t first = std::min(replicated, length);
      return first + rounded_up(length - first, multiple);
    };
    longest = rounded(longest);
    if (lengths) std::ranges::transform(*lengths, lengths->begin(), rounded);
  };
  round(keys_like_queries(c) ? c.replicated : replicated_queries(c), c.seqlen_q, c.seqlens);
  round(c.replicated, c.seqlen_kv, c.seqlens_kv);
}

// Cuts queries like keys.
void cut_queries(Case& c) {
  if (!std::exchange(c.all_queries, false)) return;
  round_lengths(c);
}

// Removes `tokens` replicated tokens from every sequence and keeps the other tokens.
void take_replicated(Case& c, std::int64_t tokens) {
  c.replicated -= tokens;
  for (std::int64_t* length : {&c.seqlen_q, &c.seqlen_kv}) *length = std::max<std::int64_t>(1, *length - tokens);
  for_each_length(c, [tokens](std::int64_t length) { return std::max<std::int64_t>(0, length - tokens); });
}

// Gives members of the case their defaults.
template <typename... Member>
void reset(Case& c, Member Case::*... members) {
  static const Case plain;
  ((c.*members = plain.*members), ...);
}

void drop_all_features(Case& c) {
  reset(c, &Case::bias, &Case::softmax, &Case::max_logit, &Case::deterministic, &Case::causal, &Case::strided,
        &Case::chunk, &Case::mask, &Case::softcap, &Case::fp8, &Case::window, &Case::backend, &Case::input_scale,
        &Case::score_offset, &Case::inner, &Case::group, &Case::seed);
  c.dtype = DType::fp32;
  cut_queries(c);
  take_replicated(c, c.replicated);
}

void try_without_features(Steps& steps, const Case& /*c*/) {
  steps.add([](Case& s) {
    drop_all_features(s);
    s.training = false;
  });
  steps.add(drop_all_features);  // many faults are in the backward alone
}

void reduce_ranks(Steps& steps, const Case& c) {
  std::vector<int> sizes{1, 2, c.cp_size / 2, c.cp_size - 1};
  std::erase_if(sizes, [&](int size) { return size < 1 || size >= c.cp_size; });
  for (const int size : sizes) {
    // The first step keeps the length of a rank's piece; the second keeps the length of the sequence, rounded up.
    steps.add([&](Case& s) {
      const std::int64_t before = dual_chunks(s.cp_size);
      s.cp_size = size;
      const auto scale = [&](std::int64_t length) {
        return rounded_up(length, before) / before * dual_chunks(s.cp_size);
      };
      for (std::int64_t* length : {&s.seqlen_q, &s.seqlen_kv}) *length = scale(*length);
      for_each_length(s, scale);
      if (s.kv_heads == c.cp_size) {
        s.heads = s.heads / s.kv_heads * size;
        s.kv_heads = size;
      }
    });
    steps.add([&](Case& s) {
      s.cp_size = size;
      round_lengths(s);
    });
  }
}

void erase_sequence(Case& c, std::size_t b) {
  --c.batch;
  for (auto* lengths : {&c.seqlens, &c.seqlens_kv}) {
    if (*lengths) (*lengths)->erase((*lengths)->begin() + static_cast<std::ptrdiff_t>(b));
  }
}

void keep_one_sequence(Case& c, std::size_t b) {
  c.batch = 1;
  for (auto* lengths : {&c.seqlens, &c.seqlens_kv}) {
    if (*lengths) *lengths = {(*lengths)->at(b)};
  }
}

void reduce_batch(Steps& steps, const Case& c) {
  const auto batch = static_cast<std::size_t>(c.batch);
  if (batch < 2) return;
  for (const auto change : {keep_one_sequence, erase_sequence}) {
    for (std::size_t b = 0; b < batch; ++b) steps.add([=](Case& s) { change(s, b); });
  }
}

// Makes drawn lengths explicit: drawn ones cannot be shortened one by one, and a reader does not see them.
void spell_lengths_out(Steps& steps, const Case& c) {
  if (c.layout != Layout::thd) return;
  const SequenceLengths lengths = resolve_lengths(c);
  steps.add([&](Case& s) {
    s.seqlens = lengths.valid_q;
    s.seqlens_kv.reset();
    if (c.seqlen_q != c.seqlen_kv || lengths.valid_kv != lengths.valid_q) s.seqlens_kv = lengths.valid_kv;
  });
}

void simplify_layout(Steps& steps, const Case& /*c*/) {
  const auto unpack = [](Case& s) {
    s.layout = Layout::bshd;
    s.pad_between_seqs = false;
    s.seqlens.reset();
    s.seqlens_kv.reset();
    round_lengths(s);
  };
  steps.add(unpack);
  steps.add([](Case& s) { s.layout = Layout::bshd; });
  steps.add([](Case& s) {
    s.seqlen_kv = s.seqlen_q;
    s.seqlens_kv.reset();
  });
  steps.add([](Case& s) {
    s.pad_between_seqs = false;
    round_lengths(s);
  });
}

std::int64_t unit_of_lengths(const Case& c) {
  return c.pad_between_seqs ? 1 : dual_chunks(c.cp_size);
}

// Reduces seqlen_q and seqlen_kv to the longest explicit valid length, rounded up to a multiple of 2 * cp_size unless
// the case has padding between sequences.
void trim(Case& c) {
  const std::int64_t unit = unit_of_lengths(c);
  const auto fit = [unit](const Lengths& lengths) {
    return std::max(unit, rounded_up(*std::ranges::max_element(lengths), unit));
  };
  const bool equal = c.seqlen_q == c.seqlen_kv;
  if (c.seqlens) c.seqlen_q = fit(*c.seqlens);
  if (c.seqlens_kv) c.seqlen_kv = fit(*c.seqlens_kv);
  if (!equal) return;
  if (!c.seqlens_kv) c.seqlen_kv = c.seqlen_q;
  c.seqlen_q = c.seqlen_kv = std::max(c.seqlen_q, c.seqlen_kv);
}

void reduce_lengths(Steps& steps, const Case& c) {
  const std::int64_t unit = unit_of_lengths(c);
  const std::int64_t unit_q = c.all_queries ? 1 : unit;
  steps.add(trim);
  steps.add([](Case& s) { s.seqlen_q = s.seqlen_kv = std::min(s.seqlen_q, s.seqlen_kv); });
  if (c.seqlen_q == c.seqlen_kv) steps.reduce(unit, unit, &Case::seqlen_q, &Case::seqlen_kv);
  steps.reduce(unit_q, unit_q, &Case::seqlen_q);
  steps.reduce(unit, unit, &Case::seqlen_kv);
  for (std::size_t b = 0; c.seqlens && b < c.seqlens->size(); ++b) {
    steps.reduce(0, unit_q, [b](auto& s) -> auto& { return s.seqlens.value().at(b); });
  }
  for (std::size_t b = 0; c.seqlens_kv && b < c.seqlens_kv->size(); ++b) {
    steps.reduce(0, unit, [b](auto& s) -> auto& { return s.seqlens_kv.value().at(b); });
  }
}

void reduce_heads(Steps& steps, const Case& c) {
  const int ranks = head_ranks(c);
  const auto set = [&steps](std::int64_t heads, std::int64_t kv_heads) {
    steps.add([=](Case& s) {
      s.heads = heads;
      s.kv_heads = kv_heads;
    });
  };
  for (const std::int64_t kv_heads : {std::int64_t{1}, std::int64_t{2}, std::int64_t{ranks}, c.kv_heads}) {
    for (const std::int64_t group : {std::int64_t{1}, std::int64_t{2}, c.heads / c.kv_heads}) {
      set(kv_heads * group, kv_heads);
    }
  }
}

void reduce_head_dims(Steps& steps, const Case& c) {
  if (c.head_dim_qk == c.head_dim_v) steps.reduce(1, 1, &Case::head_dim_qk, &Case::head_dim_v);
  steps.add([](Case& s) { s.head_dim_v = s.head_dim_qk = std::min(s.head_dim_v, s.head_dim_qk); });
  steps.reduce(1, 1, &Case::head_dim_qk);
  steps.reduce(1, 1, &Case::head_dim_v);
}

void drop_features(Steps& steps, const Case& c) {
  const auto drop = [&](auto... members) { (steps.add([=](Case& s) { reset(s, members); }), ...); };
  drop(&Case::bias, &Case::softmax);
  if (c.softmax == SoftmaxType::learnable) steps.add([](Case& s) { s.softmax = SoftmaxType::off_by_one; });
  drop(&Case::max_logit);
  steps.add([](Case& s) { s.training = false; });
  drop(&Case::deterministic, &Case::chunk, &Case::mask, &Case::softcap, &Case::fp8, &Case::causal);
  steps.add([](Case& s) { s.window[0] = kInfiniteWindow; });
  steps.add([](Case& s) { s.window[1] = kInfiniteWindow; });
  steps.add([](Case& s) { s.dtype = DType::fp32; });
  drop(&Case::backend, &Case::comm, &Case::inner, &Case::input_scale, &Case::score_offset, &Case::strided);
  steps.add(cut_queries);
  drop(&Case::group);
  steps.add([](Case& s) { s.group = std::min(s.group, 2); });
  drop(&Case::group_ranks, &Case::group_lengths, &Case::seed);
}

void reduce_replicated(Steps& steps, const Case& c) {
  for (const std::int64_t fewer : {c.replicated, c.replicated - c.replicated / 2, std::int64_t{1}}) {
    if (fewer == 0 || fewer > c.replicated) continue;
    steps.add([fewer](Case& s) { take_replicated(s, fewer); });
    steps.add([fewer](Case& s) {
      s.replicated -= fewer;
      round_lengths(s);
    });
  }
}

void reduce_mask(Steps& steps, const Case& c) {
  if (c.chunk > 0) steps.reduce(1, 1, &Case::chunk);
  for (std::size_t side = 0; side < c.window.size(); ++side) {
    if (c.window[side] > 0) steps.reduce(0, 1, [side](auto& s) -> auto& { return s.window[side]; });
  }
  for (std::size_t i = 0; i < c.mask.size(); ++i) {
    steps.add([i](Case& s) { s.mask.erase(s.mask.begin() + static_cast<std::ptrdiff_t>(i)); });
    steps.add([i](Case& s) { s.mask[i].type = SliceType::full; });
  }
}

// The kinds of steps, in the order in which they are tried: those that make the later ones cheaper and fewer come
// first.
constexpr std::array kKinds{try_without_features, spell_lengths_out, reduce_ranks, reduce_batch,
                            simplify_layout,      reduce_lengths,    reduce_heads, reduce_head_dims,
                            drop_features,        reduce_replicated, reduce_mask};

// Whether c is simpler than `than`. Not every step leads to a simpler case: some set one size to another, or round
// lengths up.
bool is_simpler(const Case& c, const Case& than) {
  const auto tokens = [](const Case& of) {
    const SequenceLengths lengths = resolve_lengths(of);
    std::int64_t sum = 0;
    for (const auto* list : {&lengths.valid_q, &lengths.valid_kv}) {
      for (const std::int64_t length : *list) sum += length;
    }
    return sum;
  };
  if (c.cp_size > than.cp_size || c.heads > than.heads || c.kv_heads > than.kv_heads) return false;
  if (has_uneven_heads(c) && !has_uneven_heads(than)) return false;
  if (c.pad_between_seqs && c.layout != Layout::thd && than.layout == Layout::thd) return false;
  if (c.group > than.group || c.replicated > than.replicated) return false;
  if (c.head_dim_qk > than.head_dim_qk || c.head_dim_v > than.head_dim_v) return false;
  // A case with as many keys as queries counts as simpler than one with slightly fewer keys.
  if (keys_like_queries(than) && !keys_like_queries(c)) return false;
  const bool says_less = keys_like_queries(c) && !keys_like_queries(than);
  return c.cp_size < than.cp_size || c.replicated < than.replicated || c.all_queries != than.all_queries ||
         c.layout != than.layout || c.pad_between_seqs != than.pad_between_seqs || says_less ||
         tokens(c) <= tokens(than);
}

}  // namespace

Shrinker::Shrinker(Case failing, Allowed allowed) : smallest_(std::move(failing)), allowed_(std::move(allowed)) {
  tried_.insert(to_json(smallest_).dump());
  collect();
}

void Shrinker::collect() {
  Steps steps(smallest_);
  kKinds.at(step_)(steps, smallest_);
  waiting_ = steps.take();
  std::ranges::reverse(waiting_);
}

std::optional<Case> Shrinker::next() {
  for (;;) {
    while (!waiting_.empty()) {
      Case simpler = std::move(waiting_.back());
      waiting_.pop_back();
      if (find_problem(simpler) || !is_simpler(simpler, smallest_) || (allowed_ && !allowed_(simpler))) continue;
      if (!tried_.insert(to_json(simpler).dump()).second) continue;
      return trying_ = std::move(simpler);
    }
    if (++steps_in_vain_ >= kKinds.size()) return std::nullopt;
    step_ = (step_ + 1) % kKinds.size();
    collect();
  }
}

void Shrinker::tell(bool fails) {
  if (!fails) return;
  smallest_ = *std::move(trying_);
  steps_in_vain_ = 0;
  collect();
}

}  // namespace cp_pool::search
