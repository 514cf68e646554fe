// find_problem: decides which combinations of a case's fields make sense.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "cases/case_groups.h"
#include "cases/case_json.h"
#include "cases/comm_facts.h"
#include "cases/dual_chunk.h"
#include "cases/lengths.h"
#include "cases/mask.h"

namespace cp_pool {
namespace {

using Problem = std::optional<CaseProblem>;

// Token offsets (cu_seqlens) are int32, and tokens * heads * head_dim has to fit into int64.
constexpr std::int64_t kMaxTokens = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxHeads = 1 << 16;
constexpr std::int64_t kMaxHeadDim = 1 << 15;
// Above kMostInputScale, fp16 overflows in a value that an eager implementation rounds: q . k before it is scaled.
constexpr double kLeastInputScale = 1e-3;
constexpr double kMostInputScale = 30;
// Up to kMostScoreOffset, q . k before it is scaled fits into fp16 at every head_dim_qk, and an lse in fp32 is exact
// enough for a backward. At kMostScoreOffsetOfForward, fp32 numbers are 2^-7 apart, which is about the precision of p.
constexpr double kLeastScoreOffset = 1;
constexpr double kMostScoreOffset = 256;
constexpr double kMostScoreOffsetOfForward = 65536;
constexpr double kLeastSoftcap = 1e-3;
constexpr double kMostSoftcap = 1e4;

Problem problem(std::string_view field, std::string message) {
  return CaseProblem{.field = std::string(field), .message = std::move(message)};
}

Problem check_range(std::string_view field, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value >= low && value <= high) return std::nullopt;
  return problem(field, fmt::format("{} is not within {}..{}", value, low, high));
}

// Checks that filters can spell the name, which becomes a part of IDs.
Problem check_name(std::string_view field, const std::string& name) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  const bool good =
      !name.empty() && kLetters.find(name.front()) != std::string_view::npos &&
      std::ranges::all_of(name, [&](char letter) {
        return kLetters.find(letter) != std::string_view::npos || letter == '_' || letter == '-' || letter == '.';
      });
  if (good) return std::nullopt;
  return problem(field, fmt::format("{} is not a name: letters, digits, '_', '-' and '.', the first a letter or digit",
                                    describe(name)));
}

Problem check_names(const Case& c) {
  Problem found = check_name("suite", c.suite);
  return found ? found : check_name("model", c.model);
}

Problem check_sizes(const Case& c) {
  struct Size {
    std::string_view field;
    std::int64_t value;
    std::int64_t high;
  };
  const Size sizes[] = {{"cp_size", c.cp_size, kMostCaseRanks},   {"group", c.group, kMostCaseRanks},
                        {"batch", c.batch, kMaxTokens},           {"seqlen_q", c.seqlen_q, kMaxTokens},
                        {"seqlen_kv", c.seqlen_kv, kMaxTokens},   {"heads", c.heads, kMaxHeads},
                        {"kv_heads", c.kv_heads, kMaxHeads},      {"head_dim_qk", c.head_dim_qk, kMaxHeadDim},
                        {"head_dim_v", c.head_dim_v, kMaxHeadDim}};
  for (const Size& size : sizes) {
    if (auto found = check_range(size.field, size.value, 1, size.high)) return found;
  }
  if (c.heads % c.kv_heads != 0) {
    return problem("kv_heads", fmt::format("heads ({}) is not a multiple of kv_heads ({})", c.heads, c.kv_heads));
  }
  return std::nullopt;
}

// Checks that every rank of the world is in one of the listed groups.
Problem check_group_ranks(const Case& c) {
  const auto& groups = *c.group_ranks;
  if (static_cast<int>(groups.size()) != c.group) {
    return problem("group_ranks", fmt::format("{} lists of ranks for a group of {}", groups.size(), c.group));
  }
  if (static_cast<int>(groups.front().size()) != c.cp_size) {
    return problem("group_ranks[0]", fmt::format("{} ranks for a cp_size of {}", groups.front().size(), c.cp_size));
  }
  std::set<int> listed;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const std::string element = fmt::format("group_ranks[{}]", group);
    if (groups[group].empty()) return problem(element, "a group has at least one rank");
    if (!std::ranges::is_sorted(groups[group])) return problem(element, "the ranks of a group ascend");
    for (const int rank : groups[group]) {
      if (auto found = check_range(element, rank, 0, world_size(c) - 1)) return found;
      if (!listed.insert(rank).second) return problem(element, fmt::format("rank {} is listed twice", rank));
    }
  }
  return std::nullopt;
}

Problem check_world(const Case& c) {
  if (world_size(c) > kMostCaseRanks) {
    return problem("group", fmt::format("{} groups of {} ranks are {} ranks, and there are at most {}", c.group,
                                        c.cp_size, world_size(c), kMostCaseRanks));
  }
  return c.group_ranks ? check_group_ranks(c) : std::nullopt;
}

// Two slices that show the same pair would count it twice in kernels that add up slices.
Problem check_overlap(const Case& c, std::size_t one, std::size_t other) {
  const MaskSlice& a = c.mask[one];
  const MaskSlice& b = c.mask[other];
  if (intersect(a.keys, b.keys).size() == 0) return std::nullopt;
  const Interval rows = intersect(a.queries, b.queries);
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    const Interval both = intersect(visible_keys(a, i), visible_keys(b, i));
    if (both.size() == 0) continue;
    return problem(fmt::format("mask[{}]", other),
                   fmt::format("overlaps mask[{}]: both show key {} to query {}", one, both.begin, i));
  }
  return std::nullopt;
}

Problem check_slices(const Case& c) {
  if (c.mask.empty()) return std::nullopt;
  const Case none;
  if (c.causal || c.window != none.window || c.chunk != none.chunk) {
    return problem("mask", "stands in place of causal, window and chunk, and the case has one of them, too");
  }
  for (std::size_t s = 0; s < c.mask.size(); ++s) {
    const auto fits = [](const Interval& range, std::int64_t length) {
      return range.begin >= 0 && range.begin < range.end && range.end <= length;
    };
    const auto& [queries, keys, type] = c.mask[s];
    const bool queries_fit = fits(queries, c.seqlen_q);
    if (!queries_fit || !fits(keys, c.seqlen_kv)) {
      const Interval& range = queries_fit ? keys : queries;
      return problem(fmt::format("mask[{}]", s),
                     fmt::format("[{}, {}) is no range of {} within {} positions", range.begin, range.end,
                                 queries_fit ? "keys" : "queries", queries_fit ? c.seqlen_kv : c.seqlen_q));
    }
    for (std::size_t before = 0; before < s; ++before) {
      if (auto found = check_overlap(c, before, s)) return found;
    }
  }
  return std::nullopt;
}

// The rounding of q and k to FP8 would change larger scores beyond recognition.
Problem check_fp8(const Case& c) {
  if (!c.fp8) return std::nullopt;
  if (!c.fp8->forward) return problem("fp8.forward", "false: a case in FP8 has its forward in FP8");
  if (c.dtype == DType::fp32) return problem("fp8", "the dtype of a case in FP8 is bf16 or fp16, not fp32");
  if (c.input_scale > 1) return problem("fp8", fmt::format("an input_scale of {} is too large for it", c.input_scale));
  return c.score_offset == 0 ? std::nullopt : problem("fp8", "a score_offset is too large for it");
}

Problem check_softcap(const Case& c) {
  if (c.softcap == 0) return std::nullopt;
  const bool fits = c.softcap >= kLeastSoftcap && c.softcap <= kMostSoftcap;  // NaN does not
  if (!fits) {
    return problem("softcap", fmt::format("{} is neither 0 nor within {}..{}", c.softcap, kLeastSoftcap, kMostSoftcap));
  }
  if (c.score_offset == 0) return std::nullopt;
  return problem("softcap", "it takes away what score_offset adds to scores; a case has one of them at most");
}

Problem check_mask(const Case& c) {
  for (std::size_t i = 0; i < c.window.size(); ++i) {
    if (auto found = check_range(fmt::format("window[{}]", i), c.window[i], kInfiniteWindow, kMaxTokens)) return found;
  }
  if (auto found = check_range("chunk", c.chunk, 0, kMaxTokens)) return found;
  return check_slices(c);
}

Problem check_input_scale(const Case& c) {
  if (c.input_scale >= kLeastInputScale && c.input_scale <= kMostInputScale) return std::nullopt;
  return problem("input_scale",
                 fmt::format("{} is not within {}..{}", c.input_scale, kLeastInputScale, kMostInputScale));
}

Problem check_score_offset(const Case& c) {
  const double size = std::abs(c.score_offset);
  if (size == 0) return std::nullopt;
  const bool takes_more = c.dtype == DType::fp32 && !c.training;
  const double most = takes_more ? kMostScoreOffsetOfForward : kMostScoreOffset;
  const bool is_within = size >= kLeastScoreOffset && size <= most;  // false for NaN
  if (!is_within) {
    return problem("score_offset",
                   fmt::format("{} is neither 0 nor {}..{} above or below it{}", c.score_offset, kLeastScoreOffset,
                               most, takes_more ? "" : ", the limit for 16 bits and for training"));
  }
  if (c.head_dim_qk > 1) return std::nullopt;
  return problem("score_offset", fmt::format("{} takes the last dimension of q and k, and a head_dim_qk of 1 has no "
                                             "other",
                                             c.score_offset));
}

Problem check_comm(const Case& c) {
  const CommFacts& facts = facts_of(c.comm);
  if (c.inner != kPair && (c.comm != CommType::a2a_p2p || (c.inner != 4 && c.inner != 8))) {
    return problem("inner", fmt::format("{} is not 2, nor 4 or 8 with comm a2a+p2p", c.inner));
  }
  if (facts.takes_size(rank_counts(c))) return std::nullopt;
  return problem("cp_size",
                 fmt::format("{} does not fit comm {}, which needs {}", c.cp_size, to_string(c.comm), facts.sizes));
}

// A larger value would be the same as the whole sequence and leave nothing to split over the ranks.
Problem check_replicated(const Case& c) {
  const bool q_is_shorter = !c.all_queries && c.seqlen_q <= c.seqlen_kv;
  const std::int64_t most = q_is_shorter ? c.seqlen_q : c.seqlen_kv;
  if (c.replicated >= 0 && c.replicated <= most) return std::nullopt;
  return problem("replicated", fmt::format("{} is not within 0..{} (the upper limit is {})", c.replicated, most,
                                           q_is_shorter ? "seqlen_q" : "seqlen_kv"));
}

// A side of a case: its queries or its keys.
struct Side {
  std::string_view field;  // of the largest length
  std::int64_t largest = 0;
  std::int64_t replicated = 0;
};

Side queries_of(const Case& c) {
  return {.field = "seqlen_q", .largest = c.seqlen_q, .replicated = replicated_queries(c)};
}
Side keys_of(const Case& c) {
  return {.field = "seqlen_kv", .largest = c.seqlen_kv, .replicated = c.replicated};
}

// The number of tokens of a sequence that are split over the ranks.
std::int64_t cut_tokens(const Side& side, std::int64_t length) {
  return length - replicated_tokens(side.replicated, length);
}

std::string without_replicated(const Side& side, std::int64_t length) {
  if (side.replicated == 0) return {};
  return fmt::format(" without its {} replicated tokens", replicated_tokens(side.replicated, length));
}

Problem check_explicit_lengths(const Case& c, std::string_view field, const std::vector<std::int64_t>& lengths,
                               const Side& side) {
  if (static_cast<std::int64_t>(lengths.size()) != c.batch) {
    return problem(field, fmt::format("{} lengths for a batch of {}", lengths.size(), c.batch));
  }
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    const std::string element = fmt::format("{}[{}]", field, b);
    if (lengths[b] < 0) return problem(element, fmt::format("the length {} is negative", lengths[b]));
    if (lengths[b] > side.largest) {
      return problem(element,
                     fmt::format("the length {} is larger than {} ({})", lengths[b], side.field, side.largest));
    }
    if (!c.pad_between_seqs && cut_tokens(side, lengths[b]) % dual_chunks(c.cp_size) != 0) {
      return problem(element, fmt::format("the length {} of sequence {}{} is not a multiple of 2 * cp_size ({}), and "
                                          "without pad_between_seqs it cannot be padded",
                                          lengths[b], b, without_replicated(side, lengths[b]), dual_chunks(c.cp_size)));
    }
  }
  return std::nullopt;
}

Problem check_divisible(const Case& c, const Side& side) {
  if (cut_tokens(side, side.largest) % dual_chunks(c.cp_size) == 0) return std::nullopt;
  return problem(side.field, fmt::format("the length {} of every sequence{} is not a multiple of 2 * cp_size ({})",
                                         side.largest, without_replicated(side, side.largest), dual_chunks(c.cp_size)));
}

Problem check_tokens(const Case& c, const Side& side) {
  const std::int64_t multiple = dual_chunks(c.cp_size);
  const std::int64_t cut = cut_tokens(side, side.largest);
  const std::int64_t padded = side.largest - cut + (cut + multiple - 1) / multiple * multiple;
  if (padded <= kMaxTokens / c.batch) return std::nullopt;
  return problem(side.field,
                 fmt::format("{} sequences of {} tokens are more than {} tokens", c.batch, padded, kMaxTokens));
}

Problem check_lengths(const Case& c) {
  Side queries = queries_of(c);
  const Side keys = keys_of(c);
  for (const Side& side : {queries, keys}) {
    if (auto found = check_tokens(c, side)) return found;
  }
  if (c.layout != Layout::thd) {
    const auto only_thd = [&c](std::string_view field) {
      return problem(field, fmt::format("only allowed with layout thd, not {}", to_string(c.layout)));
    };
    if (c.seqlens) return only_thd("seqlens");
    if (c.seqlens_kv) return only_thd("seqlens_kv");
  }
  if (c.seqlens) {
    if (keys_like_queries(c)) queries.replicated = keys.replicated;
    if (auto found = check_explicit_lengths(c, "seqlens", *c.seqlens, queries)) return found;
  }
  if (c.seqlens_kv) {
    if (auto found = check_explicit_lengths(c, "seqlens_kv", *c.seqlens_kv, keys)) return found;
  }
  // Drawn lengths are rounded up to a multiple of 2 * cp_size, so the largest possible length has to be one.
  if (c.pad_between_seqs) return std::nullopt;
  const bool kv_is_explicit = c.seqlens_kv || (c.seqlens && keys_like_queries(c));
  if (!c.seqlens) {
    if (auto found = check_divisible(c, queries)) return found;
  }
  return kv_is_explicit ? std::nullopt : check_divisible(c, keys);
}

Problem check_group_lengths(const Case& c) {
  if (!c.group_lengths) return std::nullopt;
  if (static_cast<int>(c.group_lengths->size()) != c.group) {
    return problem("group_lengths",
                   fmt::format("{} lists of lengths for a group of {}", c.group_lengths->size(), c.group));
  }
  if (c.seqlens != c.group_lengths->front()) return problem("group_lengths[0]", "differs from seqlens");
  if (!keys_like_queries(c)) return problem("group_lengths", "keys need the lengths of queries");
  return std::nullopt;
}

// Checks the problems of the groups after the first, which may differ from that of the case in ranks and lengths.
Problem check_other_groups(const Case& c) {
  for (int group = 1; (c.group_ranks || c.group_lengths) && group < c.group; ++group) {
    Case own = case_of_group(c, group);
    own.group = 1;
    own.group_ranks.reset();
    own.group_lengths.reset();
    if (const auto found = find_problem(own)) {
      return problem(c.group_lengths ? "group_lengths" : "group_ranks",
                     fmt::format("group {}: {}: {}", group, found->field, found->message));
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<CaseProblem> find_problem(const Case& c) {
  // Later checks rely on earlier ones.
  for (const auto check :
       {check_names, check_sizes, check_world, check_mask, check_input_scale, check_score_offset, check_softcap,
        check_fp8, check_comm, check_replicated, check_lengths, check_group_lengths, check_other_groups}) {
    if (auto found = check(c)) return found;
  }
  return std::nullopt;
}

}  // namespace cp_pool
