#include "cp_core/testing/witness_cases.h"

#include <algorithm>
#include <iterator>
#include <random>

#include "cp_core/testing/cases_on_threads.h"

namespace cp_pool::verify::test {

std::vector<Case> rare_cases() {
  // A rank's two chunks of queries must not become one tile if the diagonal continues past the keys of the first chunk,
  // or does not meet the first row of the second chunk.
  Case right_window = small_case();
  right_window.cp_size = 4;
  right_window.seqlen_q = right_window.seqlen_kv = 64;
  right_window.window = {kInfiniteWindow, 1};
  Case fewer_keys = right_window;
  fewer_keys.window = {kInfiniteWindow, 2};
  fewer_keys.seqlen_kv = 56;
  // The lse of the parts of a row differ by about 10, so that the smaller part still shows in the merged lse.
  Case uneven = steep_case();
  uneven.input_scale = 3;
  // Kv heads that two ranks need, and kv heads of which one rank has more than the other.
  Case shared_heads = small_case();
  shared_heads.comm = CommType::a2a;
  shared_heads.cp_size = shared_heads.heads = 4;
  shared_heads.kv_heads = 2;
  Case uneven_heads = small_case();
  uneven_heads.comm = CommType::a2a;
  uneven_heads.cp_size = 4;
  uneven_heads.heads = 12;
  uneven_heads.kv_heads = 6;
  // Parts of a few queries, of which some are empty.
  Case decode = small_case();
  decode.comm = CommType::all_gather;
  decode.cp_size = 4;
  decode.layout = Layout::thd;
  decode.pad_between_seqs = decode.all_queries = decode.causal = true;
  decode.training = false;
  decode.batch = 2;
  decode.seqlens = {3, 1};
  decode.seqlens_kv = {16, 3};
  std::vector<Case> cases{decode,       right_window,  fewer_keys,       one_key_case(), steep_case(),
                          shared_heads, uneven,        high_sink_case(), low_case(),     lowest_case(),
                          uneven_heads, capped_case(), documents_case()};
  std::ranges::move(twin_cases(), std::back_inserter(cases));
  return cases;
}

std::vector<Case> witness_cases() {
  constexpr std::size_t kRandomCases = 120;
  std::vector<Case> cases;
  std::mt19937_64 generator(7);
  while (cases.size() < kRandomCases) {
    Case c = random_case(generator);
    c.training = true;
    if (c.cp_size > 1 && skip_reason(c).empty()) cases.push_back(c);
  }
  std::ranges::copy(rare_cases(), std::back_inserter(cases));
  Case inner = small_case();
  inner.comm = CommType::a2a_p2p;
  inner.cp_size = 8;
  inner.inner = inner.heads = inner.kv_heads = 4;
  inner.causal = true;
  cases.push_back(inner);
  return cases;
}

}  // namespace cp_pool::verify::test
