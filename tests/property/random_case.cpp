#include "tests/property/random_case.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <vector>

#include "cases/case_names.h"
#include "cases/comm_facts.h"

namespace cp_pool::property {
namespace {

using Lengths = std::vector<std::int64_t>;

class Draw {
 public:
  explicit Draw(std::mt19937_64& generator) : generator_(generator) {}

  // Not std::uniform_int_distribution, whose results differ between standard libraries.
  std::int64_t up_to(std::int64_t largest) {
    return static_cast<std::int64_t>(generator_() % static_cast<std::uint64_t>(largest + 1));
  }

  template <typename T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[generator_() % choices.size()];
  }
  template <typename Enum>
  Enum any() {
    return kValues<Enum>[generator_() % kValues<Enum>.size()];
  }

  bool one_in(std::int64_t n) { return up_to(n - 1) == 0; }

  std::uint64_t bits() { return generator_(); }

 private:
  std::mt19937_64& generator_;
};

void draw_ranks(Draw& draw, Case& c) {
  c.backend = draw.any<Backend>();
  c.comm = draw.any<CommType>();
  do {
    c.cp_size = draw.one_of({1, 2, 2, 2, 3, 4, 4, 5, 6, 7, 8});
  } while (!facts_of(c.comm).takes_size(c.cp_size));
  c.dtype = draw.one_of({DType::fp32, DType::bf16, DType::fp16});
}

void draw_heads(Draw& draw, Case& c) {
  c.kv_heads = draw.one_of<std::int64_t>({1, 2, 3});
  if (const int ranks = head_ranks(c); ranks > 1) c.kv_heads = ranks * draw.one_of<std::int64_t>({1, 1, 2});
  c.heads = c.kv_heads * draw.one_of<std::int64_t>({1, 2, 3});
  c.head_dim_qk = draw.one_of<std::int64_t>({1, 4, 8, 12});
  c.head_dim_v = draw.one_of<std::int64_t>({c.head_dim_qk, c.head_dim_qk, 4, 8});
}

// Zero-length and full-length sequences come up often: they are where the borders lie.
Lengths draw_lengths(Draw& draw, const Case& c, std::int64_t largest) {
  const std::int64_t multiple = c.pad_between_seqs ? 1 : std::int64_t{2} * c.cp_size;
  Lengths lengths(static_cast<std::size_t>(c.batch));
  for (std::int64_t& length : lengths) {
    length = draw.one_of({std::int64_t{0}, largest, draw.up_to(largest), draw.up_to(largest)}) / multiple * multiple;
  }
  return lengths;
}

void draw_shape(Draw& draw, Case& c) {
  c.layout = draw.one_of({Layout::bshd, Layout::sbhd, Layout::thd, Layout::thd});
  c.pad_between_seqs = c.layout == Layout::thd && draw.one_in(2);
  c.batch = 1 + draw.up_to(c.layout == Layout::thd ? 3 : 1);
  const std::int64_t multiple = std::int64_t{2} * c.cp_size;
  const auto draw_longest = [&] {
    const std::int64_t longest = multiple * (1 + draw.up_to(std::max<std::int64_t>(1, 32 / multiple)));
    return c.pad_between_seqs ? longest - draw.up_to(multiple - 1) : longest;
  };
  c.seqlen_q = draw_longest();
  c.seqlen_kv = draw.one_in(3) ? draw_longest() : c.seqlen_q;
  if (c.layout != Layout::thd) return;
  if (draw.one_in(2)) c.seqlens = draw_lengths(draw, c, c.seqlen_q);
  if (draw.one_in(3)) c.seqlens_kv = draw_lengths(draw, c, c.seqlen_kv);
}

// Windows and chunks from nothing to more than the longest sequence.
void draw_mask(Draw& draw, Case& c) {
  c.causal = draw.one_in(2);
  const std::int64_t longest = std::max(c.seqlen_q, c.seqlen_kv);
  for (std::int64_t& side : c.window) {
    side = draw.one_of({kInfiniteWindow, kInfiniteWindow, std::int64_t{0}, draw.up_to(longest + 2)});
  }
  c.chunk = draw.one_in(2) ? 0 : 1 + draw.up_to(longest + 2);
}

void draw_scores(Draw& draw, Case& c) {
  constexpr auto kVanilla = SoftmaxType::vanilla;
  c.softmax = draw.one_of({kVanilla, kVanilla, SoftmaxType::off_by_one, SoftmaxType::learnable});
  if (draw.one_in(2)) {
    c.bias = draw.one_of({BiasShape::shape_1hss, BiasShape::shape_bhss, BiasShape::shape_b1ss, BiasShape::shape_11ss,
                          BiasShape::shape_111s});
  }
  c.max_logit = draw.one_in(2);
}

// Tokens that every rank has. Without padding the rest of every sequence has to divide over the ranks as before, so
// they come in front of it.
void draw_replicated(Draw& draw, Case& c) {
  if (!draw.one_in(4)) return;
  if (c.pad_between_seqs) {
    c.replicated = draw.up_to(std::min(c.seqlen_q, c.seqlen_kv));
    return;
  }
  c.replicated = 1 + draw.up_to(8);
  for (std::int64_t* longest : {&c.seqlen_q, &c.seqlen_kv}) *longest += c.replicated;
  for (auto* lengths : {&c.seqlens, &c.seqlens_kv}) {
    if (!*lengths) continue;
    for (std::int64_t& length : **lengths) length += length > 0 ? c.replicated : draw.up_to(c.replicated);
  }
}

}  // namespace

Case random_case(std::mt19937_64& generator) {
  Draw draw(generator);
  Case c;
  c.suite = "property";
  draw_ranks(draw, c);
  draw_heads(draw, c);
  draw_shape(draw, c);
  draw_mask(draw, c);
  draw_scores(draw, c);
  c.training = !draw.one_in(5);
  c.deterministic = draw.one_in(4);
  c.seed = draw.bits();
  c.input_scale = draw.one_of<double>({1, 1, 1, 1, 1, 0.125, 3, 10, 10, 30});
  c.strided = draw.one_in(4);
  draw_replicated(draw, c);
  // Up to 8 ranks in all.
  if (c.cp_size <= 4 && draw.one_in(4)) c.group = c.cp_size <= 2 ? draw.one_of({2, 3}) : 2;
  return c;
}

}  // namespace cp_pool::property
