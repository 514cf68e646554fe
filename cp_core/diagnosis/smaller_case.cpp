// Shrinks a case until it is small enough to be simulated densely many times.
#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>
#include <vector>

#include "cases/case_json.h"
#include "cases/comm_facts.h"
#include "cp_core/diagnosis/observation.h"

namespace cp_pool::diagnosis {
namespace {

// The most pairs of a query and a key, times heads, of one simulation: about 20 MiB in fp64.
constexpr std::int64_t kMostElements = 2'500'000;
constexpr std::int64_t kTokens = 192;  // limit for a smaller case
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kMostSequences = 3;

// Scales a window or a chunk. `none` and 0 stay as they are, and others do not become 0.
std::int64_t scaled(std::int64_t size, double by, std::int64_t none) {
  if (size == none || size == 0) return size;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(size) * by));
}

void scale_slices(Case& c, double by) {
  const auto scale = [by](std::int64_t& border) {
    border = static_cast<std::int64_t>(static_cast<double>(border) * by);
  };
  for (auto& [queries, keys, type] : c.mask) {
    for (std::int64_t* border : {&queries.begin, &queries.end, &keys.begin, &keys.end}) scale(*border);
  }
  std::erase_if(c.mask, std::mem_fn(&MaskSlice::is_empty));
}

void shrink_heads(Case& c) {
  const std::int64_t blocks = std::max(1, head_ranks(c));
  const std::int64_t group = std::min<std::int64_t>(c.heads / c.kv_heads, 2);
  std::int64_t kv_heads = std::min(c.kv_heads, std::max(blocks, kHeads / group));
  while (kv_heads % blocks != 0 && kv_heads < c.kv_heads) ++kv_heads;
  c.kv_heads = kv_heads;
  c.heads = kv_heads * group;
}

// Returns the lengths of the first `batch` sequences, all scaled by the same factor. whole: what is not replicated is a
// multiple.
std::vector<std::int64_t> shrunk(std::vector<std::int64_t> lengths, std::int64_t batch, double by,
                                 std::int64_t multiple, bool whole, std::int64_t replicated) {
  lengths.resize(static_cast<std::size_t>(batch));
  for (std::int64_t& length : lengths) {
    length = static_cast<std::int64_t>(static_cast<double>(length) * by);
    if (whole) length = replicated + std::max(multiple, (length - replicated) / multiple * multiple);
  }
  return lengths;
}

}  // namespace

bool is_small(const Case& c, const SequenceLengths& lengths) {
  const auto& [q, kv] = std::tie(lengths.padded_q, lengths.padded_kv);
  return c.heads * std::reduce(q.begin(), q.end()) * std::reduce(kv.begin(), kv.end()) <= kMostElements;
}

std::optional<SizedCase> smaller_case(const Case& c, const SequenceLengths& lengths) {
  Case small = c;
  small.batch = std::min(c.batch, kMostSequences);
  const std::int64_t multiple = std::int64_t{2} * c.cp_size;
  const std::int64_t longest = std::max(std::ranges::max(lengths.valid_q), std::ranges::max(lengths.valid_kv));
  if (longest == 0) return std::nullopt;
  const std::int64_t wanted = std::max(2 * multiple, kTokens / small.batch);
  const double by = std::min(1.0, static_cast<double>(wanted) / static_cast<double>(longest));
  shrink_heads(small);
  for (std::int64_t& side : small.window) side = scaled(side, by, kInfiniteWindow);
  small.chunk = scaled(small.chunk, by, 0);
  scale_slices(small, by);
  small.replicated = scaled(small.replicated, by, 0);
  const bool whole = !c.pad_between_seqs;
  const std::vector<std::int64_t> q =
      shrunk(lengths.valid_q, small.batch, by, multiple, whole && !c.all_queries, small.replicated);
  const std::vector<std::int64_t> kv = shrunk(lengths.valid_kv, small.batch, by, multiple, whole, small.replicated);
  small.seqlen_q = std::max(c.all_queries ? 1 : multiple, std::ranges::max(q));
  small.seqlen_kv = std::max(multiple, std::ranges::max(kv));
  if (c.layout == Layout::thd) {
    small.seqlens = q;
    small.seqlens_kv = kv;
  }
  if (find_problem(small)) return std::nullopt;
  SizedCase sized{.c = small, .lengths = resolve_lengths(small)};
  return is_small(sized.c, sized.lengths) ? std::optional(sized) : std::nullopt;
}

}  // namespace cp_pool::diagnosis
