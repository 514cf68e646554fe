// One context-parallel attention problem: what is computed, how it is split over ranks, and by which backend.
// The JSON form, with defaults and strict parsing, is in case_json.h; the name is in case_id.h.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cases/enum_names.h"

namespace cp_pool {

enum class Backend {
#define CP_POOL_BACKEND(identifier, name) identifier,
#include "cases/backends.def"
#undef CP_POOL_BACKEND
};
enum class CommType {
#define CP_POOL_COMM_TYPE(identifier, name) identifier,
#include "cases/comm_types.def"
#undef CP_POOL_COMM_TYPE
};
enum class Layout { bshd, sbhd, thd };
enum class DType { fp32, bf16, fp16 };
enum class SoftmaxType { vanilla, off_by_one, learnable };
// The letters are the extents of (batch, heads, seqlen_q, seqlen_kv); 1 is a broadcast dimension.
enum class BiasShape { shape_1hss, shape_bhss, shape_b1ss, shape_11ss, shape_111s };
constexpr bool of_each_head(BiasShape shape) {
  return shape == BiasShape::shape_1hss || shape == BiasShape::shape_bhss;
}

// A range of consecutive positions of a sequence.
struct Interval {  // [begin, end); empty if end <= begin
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t size() const { return end > begin ? end - begin : 0; }
  auto operator<=>(const Interval&) const = default;
};

// Which pairs of a slice see each other: all, those up to the diagonal that ends at the lower right corner, those from
// the diagonal that begins at the upper left corner on, or those between the two diagonals.
enum class SliceType { full, causal, inverse_causal, bicausal };
struct MaskSlice {
  Interval queries;
  Interval keys;
  SliceType type = SliceType::full;

  [[nodiscard]] bool is_empty() const { return queries.size() == 0 || keys.size() == 0; }
  auto operator<=>(const MaskSlice&) const = default;
};

// How FP8 numbers are scaled: by the largest magnitude of the tensor itself, or by that of earlier steps, which makes
// the scale of a first step 1.
enum class Fp8Scaling { current, delayed };
enum class Fp8Output { bf16, fp8 };  // whether results are left in the dtype of the case, or rounded to FP8 on the way
// What an implementation computes in FP8: q, k, v and the probabilities in e4m3, dout and the gradients of the scores
// in e5m2. lse and sums stay in fp32.
struct Fp8 {
  Fp8Scaling scaling = Fp8Scaling::current;
  bool forward = true;   // always
  bool backward = true;  // false: the backward is in the dtype of the case
  Fp8Output output = Fp8Output::bf16;

  auto operator<=>(const Fp8&) const = default;
};

// The names used in JSON, IDs and filters, e.g. "a2a+p2p" for CommType::a2a_p2p. to_string() returns them, parse_name()
// parses them (enum_names.h).
template <>
inline constexpr std::array kNames<Backend>{
#define CP_POOL_BACKEND(identifier, name) std::pair{Backend::identifier, std::string_view{name}},
#include "cases/backends.def"
#undef CP_POOL_BACKEND
};
template <>
inline constexpr std::array kNames<CommType>{
#define CP_POOL_COMM_TYPE(identifier, name) std::pair{CommType::identifier, std::string_view{name}},
#include "cases/comm_types.def"
#undef CP_POOL_COMM_TYPE
};
template <>
inline constexpr auto kNames<Layout> = kSpelledNames<Layout::thd>;
template <>
inline constexpr auto kNames<DType> = kSpelledNames<DType::fp16>;
template <>
inline constexpr auto kNames<SoftmaxType> = kSpelledNames<SoftmaxType::learnable>;
template <>
inline constexpr std::array<std::pair<BiasShape, std::string_view>, 5> kNames<BiasShape>{
    {{BiasShape::shape_1hss, "1hss"},
     {BiasShape::shape_bhss, "bhss"},
     {BiasShape::shape_b1ss, "b1ss"},
     {BiasShape::shape_11ss, "11ss"},
     {BiasShape::shape_111s, "111s"}}};
template <>
inline constexpr auto kNames<SliceType> = kSpelledNames<SliceType::bicausal>;
template <>
inline constexpr auto kNames<Fp8Scaling> = kSpelledNames<Fp8Scaling::delayed>;
template <>
inline constexpr auto kNames<Fp8Output> = kSpelledNames<Fp8Output::fp8>;

inline constexpr std::int64_t kInfiniteWindow = -1;
inline constexpr int kPair = 2;

struct Case {
  std::string suite = "adhoc";  // suite and model consist of letters, digits, '_', '-' and '.'
  std::string model = "case";
  Backend backend = Backend::math;
  CommType comm = CommType::p2p;
  int cp_size = 2;    // ranks of the first context-parallel group; all ranks of the pool if `group` is 1
  int inner = kPair;  // a2a+p2p: how many consecutive ranks exchange tokens for heads
  Layout layout = Layout::bshd;
  DType dtype = DType::bf16;

  std::int64_t batch = 2;     // number of sequences, in every layout
  std::int64_t seqlen_q = 0;  // tokens per sequence; with thd the largest valid length
  std::int64_t seqlen_kv = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // heads % kv_heads == 0
  std::int64_t head_dim_qk = 0;
  std::int64_t head_dim_v = 0;

  bool causal = false;
  std::array<std::int64_t, 2> window{kInfiniteWindow, kInfiniteWindow};  // keys to the left and right of the diagonal
  std::int64_t chunk = 0;  // chunked attention: positions per chunk; 0 = not chunked
  // In place of causal, window and chunk: a query sees a key if one of these slices shows it. Empty = no such mask.
  std::vector<MaskSlice> mask;
  double softcap = 0;  // scaled scores s become softcap * tanh(s / softcap); 0 = they stay as they are
  SoftmaxType softmax = SoftmaxType::vanilla;
  std::optional<BiasShape> bias;
  bool max_logit = false;  // also return the largest score of each head

  // thd only: the valid length of each sequence; nullopt = drawn from the seed (lengths.h).
  std::optional<std::vector<std::int64_t>> seqlens;
  // The same for keys; nullopt = equal to those of q if seqlen_kv == seqlen_q, else drawn.
  std::optional<std::vector<std::int64_t>> seqlens_kv;
  bool pad_between_seqs = false;  // valid lengths may be shorter than the padded ones

  bool training = true;  // forward and backward; false = forward only
  bool deterministic = false;
  std::optional<Fp8> fp8;  // what adapters may compute in FP8, from inputs of the dtype; nullopt = nothing
  // The standard deviation of the elements of q and k. That of the scores is about its square: 10 gives scores around
  // +-100, where a softmax that does not subtract the maximum overflows.
  double input_scale = 1;
  // Added to every score, scale included, by the last dimension of q and k: -65536 moves all scores so far below 0 that
  // a running maximum which starts at a finite number shows.
  double score_offset = 0;
  // Whether a rank's q, k, v and dout are slices of larger tensors, and therefore not contiguous.
  bool strided = false;
  // How many tokens at the beginning of each sequence, of queries and of keys, every rank holds. A shorter sequence is
  // held whole by every rank. The rest of a sequence is split over the ranks.
  std::int64_t replicated = 0;
  // Whether every rank holds all queries, as in decoding, and only keys are split. `replicated` then counts keys alone.
  bool all_queries = false;
  // How many groups of ranks run the case at once (case_groups.h).
  int group = 1;
  // The ranks of the world in each group, ascending; nullopt = every group is a strided part of the world.
  std::optional<std::vector<std::vector<int>>> group_ranks;
  // thd only: `seqlens` of each group; nullopt = all groups have the lengths of the case.
  std::optional<std::vector<std::vector<std::int64_t>>> group_lengths;
  std::uint64_t seed = 1234;

  bool operator==(const Case&) const = default;
};

}  // namespace cp_pool
