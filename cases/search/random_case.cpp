#include "cases/search/random_case.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <utility>
#include <vector>

#include "cases/comm_facts.h"
#include "cases/dual_chunk.h"
#include "cases/lengths.h"
#include "cases/search/edges.h"

namespace cp_pool::search {
namespace {

using Lengths = std::vector<std::int64_t>;

class Draw {
 public:
  explicit Draw(std::mt19937_64& generator) : generator_(generator), features_(one_of({0, 1, 4, 8, 11})) {}

  // std::uniform_int_distribution is not used, because its results differ between standard libraries.
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

  // Whether the case gets one more feature. Cases differ in their number of features: among many features one may hide
  // the fault of another, and a worker that refuses several features would refuse nearly every case.
  bool feature() { return up_to(kOf - 1) < features_; }

  std::uint64_t bits() { return generator_(); }

 private:
  static constexpr std::int64_t kOf = 16;
  std::mt19937_64& generator_;
  std::int64_t features_;  // each feature is drawn with probability features_ / kOf
};

void draw_cp_size(Draw& draw, Case& c) {
  do {
    c.cp_size = draw.one_of({1, 2, 2, 2, 3, 4, 4, 5, 6, 7, 8});
  } while (!facts_of(c.comm).takes_size({c.cp_size}));
  c.cp_size *= c.inner / kPair;  // fixed before
}

void draw_inner(Draw& draw, Case& c) {
  const RankCounts fours{.all = c.cp_size, .inner = 4};
  if (c.comm == CommType::a2a_p2p && facts_of(c.comm).takes_size(fours) && draw.feature()) c.inner = fours.inner;
}

void draw_kv_heads(Draw& draw, Case& c) {
  c.kv_heads = draw.one_of<std::int64_t>({1, 2, 3, c.cp_size});
  if (const int ranks = head_ranks(c); ranks > 1 && !draw.feature()) {
    c.kv_heads = ranks * draw.one_of<std::int64_t>({1, 1, 2});
  }
}

void draw_head_dim_v(Draw& draw, Case& c) {
  const std::int64_t other = draw.one_of<std::int64_t>({4, 8});
  c.head_dim_v = draw.feature() ? other : c.head_dim_qk;
}

// Draws the length of the longest sequence. With padding between sequences it is any length, else a multiple of 2 *
// cp_size.
std::int64_t draw_longest(Draw& draw, const Case& c) {
  constexpr std::int64_t kTokens = 32;
  const std::int64_t multiple = dual_chunks(c.cp_size);
  const std::int64_t longest = multiple * (1 + draw.up_to(std::max<std::int64_t>(1, kTokens / multiple)));
  const std::int64_t less = draw.up_to(multiple - 1);
  const bool one_token = draw.one_in(8);
  if (!c.pad_between_seqs) return longest;
  return one_token ? 1 : longest - less;
}

constexpr std::int64_t kFewQueries = 8;

// Where every rank has all queries, they are often the few of a decoding step.
void draw_seqlen_q(Draw& draw, Case& c) {
  c.seqlen_q = draw_longest(draw, c);
  if (c.all_queries && draw.one_in(2)) c.seqlen_q = 1 + draw.up_to(kFewQueries - 1);
}

void draw_seqlen_kv(Draw& draw, Case& c) {
  const std::int64_t other = draw_longest(draw, c);
  c.seqlen_kv = draw.feature() || (c.all_queries && c.seqlen_q <= kFewQueries) ? other : c.seqlen_q;
}

// Often draws empty sequences, sequences of one token, and sequences of the largest length.
Lengths draw_lengths(Draw& draw, const Case& c, std::int64_t largest, bool cut = true) {
  const std::int64_t multiple = c.pad_between_seqs || !cut ? 1 : dual_chunks(c.cp_size);
  Lengths lengths(static_cast<std::size_t>(c.batch));
  for (std::int64_t& length : lengths) {
    const std::int64_t any = draw.up_to(largest);
    length = draw.one_of({std::int64_t{0}, std::int64_t{1}, largest, any, any, any}) / multiple * multiple;
  }
  return lengths;
}

void draw_seqlens(Draw& draw, Case& c) {
  const bool cut = !c.all_queries || c.seqlen_q == c.seqlen_kv;
  if (c.layout == Layout::thd && draw.one_in(2)) c.seqlens = draw_lengths(draw, c, c.seqlen_q, cut);
}

std::int64_t longest_of(const Case& c) {
  return std::max(c.seqlen_q, c.seqlen_kv);
}

// Draws chunks from one position to more than the longest sequence, often of the size of a rank's piece.
void draw_chunk(Draw& draw, Case& c) {
  const std::int64_t piece = piece_of(c);
  const std::int64_t chunk = draw.one_of({piece, piece, 2 * piece, piece + 1, 1 + draw.up_to(longest_of(c) + 2)});
  c.chunk = draw.feature() ? chunk : 0;
}

// Draws windows from zero positions to more than the longest sequence, often ending at a chunk or a piece, or one
// position off.
void draw_window(Draw& draw, Case& c) {
  for (std::int64_t& side : c.window) {
    const std::int64_t end = c.chunk > 0 && draw.one_in(2) ? c.chunk : piece_of(c);
    const std::int64_t finite = draw.one_of({std::int64_t{0}, end - 1, end, end + 1, draw.up_to(longest_of(c) + 2)});
    side = draw.feature() ? finite : kInfiniteWindow;
  }
}

// Two documents, of which the second may see the first, each slice with its own type.
void draw_mask(Draw& draw, Case& c) {
  const auto border = [&](std::int64_t length) {
    return draw.one_in(2) ? std::min(piece_of(c), length - 1) : draw.up_to(length - 1);
  };
  const std::int64_t q = border(c.seqlen_q);
  const std::int64_t k = border(c.seqlen_kv);
  const std::vector<MaskSlice> slices{
      {.queries = {0, q}, .keys = {0, k}, .type = draw.any<SliceType>()},
      {.queries = {q, c.seqlen_q}, .keys = {k, c.seqlen_kv}, .type = draw.any<SliceType>()},
      {.queries = {q, c.seqlen_q}, .keys = {0, draw.one_in(2) ? k : 0}, .type = draw.any<SliceType>()}};
  const Case none;
  if (!draw.feature() || c.causal || c.window != none.window || c.chunk > 0) return;
  std::ranges::remove_copy_if(slices, std::back_inserter(c.mask), &MaskSlice::is_empty);
}

// The smallest caps nearly all scores.
void draw_softcap(Draw& draw, Case& c) {
  const double other = draw.one_of<double>({0.25, 2, 30, 50});
  c.softcap = draw.feature() && c.score_offset == 0 ? other : 0;
}

// FP8 is not drawn, since few adapters compute in it, but may be fixed.
void draw_dtype(Draw& draw, Case& c) {
  c.dtype = draw.any<DType>();
  if (c.fp8 && c.dtype == DType::fp32) c.dtype = DType::bf16;
}

void draw_softmax(Draw& draw, Case& c) {
  const SoftmaxType other = draw.one_of({SoftmaxType::off_by_one, SoftmaxType::learnable});
  c.softmax = draw.feature() ? other : SoftmaxType::vanilla;
}

void draw_bias(Draw& draw, Case& c) {
  const BiasShape shape = draw.any<BiasShape>();
  if (draw.feature()) c.bias = shape;
}

void draw_input_scale(Draw& draw, Case& c) {
  const double other = draw.one_of<double>({0.125, 3, 10, 10, 30});
  c.input_scale = draw.feature() && (!c.fp8 || other < 1) ? other : 1;
}

// The smaller offset takes exponentials that ignore it out of the range of fp32; the larger one lies below every number
// that is taken for minus infinity.
void draw_score_offset(Draw& draw, Case& c) {
  const double largest = c.dtype == DType::fp32 && !c.training ? 65536 : 100;
  const double other = draw.one_of({-100.0, -largest, -largest, largest});
  if (draw.feature() && c.head_dim_qk > 1 && !c.fp8) c.score_offset = other;
}

// Without padding, the replicated tokens are added in front of the drawn lengths, because the rest of every sequence
// must still divide by 2 * cp_size.
void draw_replicated(Draw& draw, Case& c) {
  const std::int64_t among = draw.up_to(std::min(c.seqlen_q, c.seqlen_kv));
  const std::int64_t in_front = 1 + draw.up_to(8);
  if (!draw.feature()) return;
  c.replicated = c.pad_between_seqs ? among : in_front;
  if (c.pad_between_seqs) return;
  for (std::int64_t* longest : {&c.seqlen_q, &c.seqlen_kv}) *longest += c.replicated;
  for (auto* lengths : {&c.seqlens, &c.seqlens_kv}) {
    if (!*lengths) continue;
    for (std::int64_t& length : **lengths) length += c.replicated;
  }
}

// Several groups of ranks, with at most 8 ranks in all.
void draw_group(Draw& draw, Case& c) {
  const int other = c.cp_size <= 2 ? draw.one_of({2, 3}) : 2;
  if (draw.feature() && c.cp_size <= 4) c.group = other;
}

// Groups of neighbours, of which the last group may have the first rank, or may be smaller than the others.
void draw_group_ranks(Draw& draw, Case& c) {
  if (c.group == 1 || draw.one_in(2)) return;
  const auto first = static_cast<int>(draw.up_to(1));
  const bool smaller =
      draw.one_in(2) && c.pad_between_seqs && c.cp_size > 1 && facts_of(c.comm).takes_size({c.cp_size - 1, c.inner});
  const int world = c.cp_size * c.group - (smaller ? 1 : 0);
  std::vector<std::vector<int>> groups(static_cast<std::size_t>(c.group));
  for (int i = 0; i < world; ++i) groups.at(static_cast<std::size_t>(i / c.cp_size)).push_back((first + i) % world);
  for (std::vector<int>& group : groups) std::ranges::sort(group);
  c.group_ranks = std::move(groups);
}

void draw_group_lengths(Draw& draw, Case& c) {
  if (c.group == 1 || !c.pad_between_seqs || !c.seqlens || !keys_like_queries(c) || draw.one_in(2)) return;
  c.group_lengths = {*c.seqlens};
  while (static_cast<int>(c.group_lengths->size()) < c.group) {
    c.group_lengths->push_back(draw_lengths(draw, c, c.seqlen_q));
    if (draw.one_in(2)) c.group_lengths->back().resize(1);
  }
}

struct Step {
  std::string_view field;
  void (*draw)(Draw& draw, Case& c);
};

// How each field is drawn, in order. A function may read the fields of the lines above it.
constexpr std::array kSteps{
    Step{"backend", [](Draw& draw, Case& c) { c.backend = draw.one_in(3) ? Backend::math : draw.any<Backend>(); }},
    Step{"comm", [](Draw& draw, Case& c) { c.comm = draw.any<CommType>(); }},
    Step{"cp_size", draw_cp_size},
    Step{"inner", draw_inner},
    Step{"dtype", draw_dtype},
    Step{"layout",
         [](Draw& draw, Case& c) { c.layout = draw.one_of({Layout::bshd, Layout::sbhd, Layout::thd, Layout::thd}); }},
    Step{"pad_between_seqs",
         [](Draw& draw, Case& c) { c.pad_between_seqs = c.layout == Layout::thd ? draw.one_in(2) : draw.feature(); }},
    Step{"batch", [](Draw& draw, Case& c) { c.batch = 1 + draw.up_to(c.layout == Layout::thd ? 3 : 1); }},
    Step{"kv_heads", draw_kv_heads},
    Step{"heads", [](Draw& draw, Case& c) { c.heads = c.kv_heads * draw.one_of<std::int64_t>({1, 2, 3}); }},
    Step{"head_dim_qk", [](Draw& draw, Case& c) { c.head_dim_qk = draw.one_of<std::int64_t>({1, 4, 8, 12}); }},
    Step{"head_dim_v", draw_head_dim_v},
    Step{"all_queries", [](Draw& draw, Case& c) { c.all_queries = draw.feature(); }},
    Step{"seqlen_q", draw_seqlen_q},
    Step{"seqlen_kv", draw_seqlen_kv},
    Step{"seqlens", draw_seqlens},
    Step{"seqlens_kv",
         [](Draw& draw, Case& c) {
           if (draw.feature() && c.layout == Layout::thd) c.seqlens_kv = draw_lengths(draw, c, c.seqlen_kv);
         }},
    Step{"replicated", draw_replicated},
    Step{"causal", [](Draw& draw, Case& c) { c.causal = draw.one_in(2); }},
    Step{"chunk", draw_chunk},
    Step{"window", draw_window},
    Step{"mask", draw_mask},
    Step{"softmax", draw_softmax},
    Step{"bias", draw_bias},
    Step{"max_logit", [](Draw& draw, Case& c) { c.max_logit = draw.feature(); }},
    Step{"training", [](Draw& draw, Case& c) { c.training = !draw.one_in(5); }},
    Step{"deterministic", [](Draw& draw, Case& c) { c.deterministic = draw.feature(); }},
    Step{"input_scale", draw_input_scale},
    Step{"score_offset", draw_score_offset},
    Step{"softcap", draw_softcap},
    Step{"fp8", [](Draw&, Case&) {}},
    Step{"strided", [](Draw& draw, Case& c) { c.strided = draw.feature(); }},
    Step{"group", draw_group},
    Step{"group_ranks", draw_group_ranks},
    Step{"group_lengths", draw_group_lengths},
    Step{"seed", [](Draw& draw, Case& c) { c.seed = draw.bits(); }},
};

void set_field(const FixedField& fixed, Case& c) {
  fixed.field->read(fixed.value, JsonPlace("--set").key(fixed.field->name), c);
}

}  // namespace

Case with_fixed(std::span<const FixedField> fixed) {
  Case c;
  for (const FixedField& one : fixed) set_field(one, c);
  return c;
}

Case random_case(std::mt19937_64& generator, std::span<const FixedField> fixed) {
  Draw draw(generator);
  Case c;
  c.suite = "search";
  for (const FixedField& one : fixed) set_field(one, c);  // includes suite and model, which no step draws
  for (const Step& step : kSteps) {
    step.draw(draw, c);
    for (const FixedField& one : fixed) {
      if (one.field->name == step.field) set_field(one, c);
    }
  }
  return c;
}

}  // namespace cp_pool::search
