// Tests over random cases that observations are true: nothing wrong is seen of our own implementation, and every pair
// is seen of one in which random queries see random keys.
//   CP_POOL_DIAGNOSIS_CASES  number of cases of each kind (default 300)
#include <charconv>
#include <cstdlib>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/ops/allclose.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/comm_facts.h"
#include "cp_core/diagnosis/testing/seen_on_threads.h"
#include "cp_core/diagnosis/testing/toy_attention.h"
#include "cp_core/diagnosis/wrong_pairs.h"
#include "cp_core/testing/cases_on_threads.h"

namespace cp_pool::diagnosis {
namespace {

using test::ToyAttention;
using test::ToySight;
using testing::IsEmpty;

int count_of_cases() {
  const char* const text = std::getenv("CP_POOL_DIAGNOSIS_CASES");
  if (text == nullptr) return 300;
  const std::string_view digits(text);
  int count = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), count);
  return count;
}

// The number of rows of keys, padding included.
std::int64_t keys_of(const Case& c) {
  std::int64_t keys = 0;
  for (const std::int64_t length : resolve_lengths(c).padded_kv) keys += length;
  return keys;
}

// Returns a case that needs few steps; many keys need hundreds.
Case random_small_case(std::mt19937_64& generator) {
  constexpr std::int64_t kMostKeys = 96;
  while (true) {
    const Case c = verify::test::random_case(generator);
    const std::int64_t keys = keys_of(c);
    if (c.group > 1) continue;  // each group is asked by itself
    if (keys > 0 && keys <= kMostKeys) return c;
  }
}

TEST(SeenKeysProperty, NothingIsWrongWithOurOwn) {
  std::mt19937_64 generator(11);
  for (int i = 0; i < count_of_cases(); ++i) {
    const Case c = random_small_case(generator);
    const SeenKeys seen = test::seen_by_own(c);
    SCOPED_TRACE(verify::test::text_of(c));
    ASSERT_FALSE(seen.wrong || seen.heads_differ || !seen.whole_numbers) << test::text_of(seen);
    if (seen.why_not == "the case has no queries, or no keys") continue;
    ASSERT_EQ(seen.why_not, "");
    ASSERT_THAT(seen.notes, IsEmpty());
  }
}

template <typename T>
T pick(std::mt19937_64& generator, std::initializer_list<T> choices) {
  return choices.begin()[generator() % choices.size()];
}

struct ToyCase {
  Case c;
  verify::Sharding sharding;
  ProbeGrid grid;
};

// Deals the valid rows to ranks at random, in any order, with padding rows in between.
verify::RowsByRank listed_rows(std::mt19937_64& generator, const std::vector<std::int64_t>& valid, int ranks) {
  std::int64_t total = 0;
  for (const std::int64_t length : valid) total += length;
  std::vector<std::vector<std::int64_t>> rows(static_cast<std::size_t>(ranks));
  for (std::int64_t row = 0; row < total; ++row) {
    auto& of_rank = rows[generator() % rows.size()];
    of_rank.push_back(row);
    if (generator() % 8 == 0) of_rank.push_back(-1);
  }
  verify::RowsByRank by_rank;
  for (auto& of_rank : rows) {
    if (generator() % 2 == 0) std::ranges::reverse(of_rank);
    by_rank.push_back(verify::local_rows(of_rank, valid));
  }
  return by_rank;
}

ToyCase any_toy_case(std::mt19937_64& generator) {
  ToyCase toy;
  Case& c = toy.c;
  c = verify::test::small_case();
  c.layout = pick(generator, {Layout::bshd, Layout::sbhd, Layout::thd, Layout::thd});
  c.dtype = pick(generator, {DType::fp32, DType::bf16, DType::fp16});
  c.cp_size = pick(generator, {2, 3, 4});
  c.batch = pick<std::int64_t>(generator, {1, 2, 3});
  c.seqlen_q = 2 * c.cp_size * pick<std::int64_t>(generator, {1, 2});
  c.seqlen_kv = pick(generator, {c.seqlen_q, 2 * c.cp_size * std::int64_t{3}});
  c.pad_between_seqs = c.layout == Layout::thd;
  c.kv_heads = pick<std::int64_t>(generator, {1, 2});
  c.heads = c.kv_heads * pick<std::int64_t>(generator, {1, 2});
  c.head_dim_v = pick<std::int64_t>(generator, {1, 5, 16});
  c.causal = pick(generator, {false, true});
  c.training = false;
  c.seed = generator();
  verify::Sharding& sharding = toy.sharding;
  sharding.padding =
      pick(generator, {verify::PaddingFill::nan, verify::PaddingFill::garbage, verify::PaddingFill::zeros});
  sharding.judges_padding = pick(generator, {false, true});
  sharding.heads = pick(generator, {verify::HeadOrder::blocked, verify::HeadOrder::interleaved});
  const SequenceLengths lengths = resolve_lengths(c);
  const char* const convention =
      pick(generator, {"dual_chunk", "dual_chunk_pack", "contiguous", "contiguous_pack", "striped", "listed"});
  if (std::string_view(convention) != "listed") {
    sharding.rows = verify::parse_convention(convention).value();
  } else if (c.layout == Layout::thd) {
    sharding.rows = verify::Ownership{.q = listed_rows(generator, lengths.valid_q, c.cp_size),
                                      .kv = listed_rows(generator, lengths.valid_kv, c.cp_size)};
  }
  toy.grid = make_grid(c, lengths, sharding, c.cp_size);
  return toy;
}

// Returns a case that has queries and keys.
ToyCase random_toy_case(std::mt19937_64& generator) {
  while (true) {
    ToyCase toy = any_toy_case(generator);
    if (toy.grid.q.size() > 0 && toy.grid.kv.size() > 0) return toy;
  }
}

// Some queries see nothing, some see what they should except for a few keys, and some see random keys.
at::Tensor random_times(std::mt19937_64& generator, const ToyCase& toy, std::int64_t most_times) {
  const SequenceLengths lengths = resolve_lengths(toy.c);
  at::Tensor times = at::zeros({toy.grid.q.size(), toy.grid.kv.size()}, at::kDouble);
  auto cells = times.accessor<double, 2>();
  for (std::int64_t i = 0; i < times.size(0); ++i) {
    const std::uint64_t kind = generator() % 4;
    const GridRow& query = toy.grid.q.row(i);
    for (std::int64_t j = 0; j < times.size(1) && kind > 0; ++j) {
      const GridRow& key = toy.grid.kv.row(j);
      const bool meets = key.sequence == query.sequence && !key.padding && !query.padding;
      const bool changed = generator() % (kind == 1 ? 2 : 6) == 0;
      const auto any = static_cast<double>(generator() % static_cast<std::uint64_t>(most_times + 1));
      cells[i][j] = changed ? any : meets ? 1 : 0;
    }
  }
  // A query that sees two keys unequally often proves that lse is right, so that lse alone is believed for other
  // queries.
  const auto valid = std::ranges::find(toy.grid.q.rows, false, &GridRow::padding);
  if (valid != toy.grid.q.rows.end() && times.size(1) > 1) {
    const auto i = valid - toy.grid.q.rows.begin();
    cells[i][0] = 1;
    cells[i][1] = 2;
  }
  return times;
}

SeenKeys seen_by_toy(const ToyCase& toy, const ToySight& sight) {
  const auto make = [&] { return std::make_unique<ToyAttention>(toy.sharding, sight); };
  return test::seen_on_threads(toy.c, make).front();
}

// Sets padding rows about which nothing is promised to NaN, since they are not read.
void hide_unread(const ToyCase& toy, at::Tensor& times) {
  for (std::int64_t i = 0; i < times.size(0) && !toy.sharding.judges_padding; ++i) {
    if (toy.grid.q.row(i).padding) times.select(0, i).fill_(std::numeric_limits<double>::quiet_NaN());
  }
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && at::allclose(a, b, 0, 0, /*equal_nan=*/true);
}

TEST(SeenKeysProperty, ReadsEveryPairAndHowOftenItMet) {
  std::mt19937_64 generator(12);
  for (int i = 0; i < count_of_cases(); ++i) {
    const ToyCase toy = random_toy_case(generator);
    const std::int64_t most_times = toy.c.dtype == DType::bf16 ? 3 : 6;
    const ToySight sight{.times = {random_times(generator, toy, most_times)}};
    const SeenKeys seen = seen_by_toy(toy, sight);
    SCOPED_TRACE(fmt::format("{}: {}", i, verify::test::text_of(toy.c)));
    at::Tensor expected = sight.times.front().clone();
    hide_unread(toy, expected);
    ASSERT_EQ(seen.why_not, "");
    ASSERT_TRUE(seen.whole_numbers);
    ASSERT_TRUE(same(seen.times, expected)) << seen.times << expected << test::text_of(seen);
    const at::Tensor differs = expected.ne(seen.expected).logical_and(expected.isnan().logical_not());
    ASSERT_EQ(seen.wrong, differs.any().item<bool>());
    ASSERT_EQ(seen.pairs.missing_pairs, expected.lt(seen.expected).sum().item<std::int64_t>());
    ASSERT_EQ(seen.pairs.excess_pairs, expected.gt(seen.expected).sum().item<std::int64_t>());
  }
}

TEST(SeenKeysProperty, ReadsEveryPairUpToAFactorWithoutLse) {
  std::mt19937_64 generator(13);
  for (int i = 0; i < count_of_cases(); ++i) {
    const ToyCase toy = random_toy_case(generator);
    ToySight sight{.times = {random_times(generator, toy, 3)}};
    sight.gives_lse = false;
    // Without lse, a query that sees keys only 2 and 3 times would be read as 1 and 1.5 times.
    at::Tensor& times = sight.times.front();
    for (std::int64_t q = 0; q < times.size(0); ++q) {
      if (times.select(0, q).eq(1).any().item<bool>()) continue;
      times.select(0, q).clamp_max_(1);
    }
    const SeenKeys seen = seen_by_toy(toy, sight);
    SCOPED_TRACE(fmt::format("{}: {}", i, verify::test::text_of(toy.c)));
    at::Tensor expected = times.clone();
    hide_unread(toy, expected);
    ASSERT_TRUE(same(seen.times, expected)) << seen.times << expected << test::text_of(seen);
  }
}

}  // namespace
}  // namespace cp_pool::diagnosis
