// Tests that a diagnosis is never certain of a mistake if another mistake of the library gives the same numbers. Which
// do is found without a diagnosis, by comparing all predictions of a case.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/diagnosis/testing/diagnosed_on_threads.h"
#include "cp_core/diagnosis/testing/simulated_attention.h"
#include "cp_core/testing/cases_on_threads.h"

namespace cp_pool::diagnosis {
namespace {

using testing::IsSupersetOf;

std::set<std::string> ids_of(const Diagnosis& diagnosis) {
  std::set<std::string> ids(diagnosis.others.begin(), diagnosis.others.end());
  ids.insert(diagnosis.id);
  return ids;
}

// The results of cases_with_alike_mistakes(), so that no hypothesis about a single one is left out.
const std::vector<std::string>& all_results() {
  static const std::vector<std::string> names{"out", "lse", "dq", "dk", "dv"};
  return names;
}

// A mistake of the library, made in a certain way.
struct Mistake {
  int hypothesis = -1;
  Attempt attempt;
  std::string id;
  // Projections of all results, for two seeds. Mistakes with the same numbers have the same.
  std::vector<double> numbers;
};

std::vector<Attempt> ways_to_make(const Hypothesis& hypothesis) {
  using Passes = Attempt::Passes;
  if (hypothesis.shows) return {};
  if (hypothesis.pass) return {{}, {.passes = Passes::forward, .from_returned = true}, {.passes = Passes::backward}};
  if (hypothesis.model && hypothesis.level == Hypothesis::Level::forward) return {{}, {.from_returned = true}};
  return {{}};
}

double projection_of(const WholeResults& results) {
  double sum = 0;
  double phase = 1;
  for (const auto& [name, member] : verify::kResults) {
    const at::Tensor& values = results.*member;
    if (!values.defined()) continue;
    const at::Tensor weights = at::arange(values.numel(), at::kDouble).mul(1.7).add(phase++).sin();
    sum += values.flatten().to(at::kDouble).nan_to_num(3.0, 5.0, 7.0).mul(weights).sum().item<double>();
  }
  return sum;
}

bool same_numbers(const Mistake& a, const Mistake& b) {
  constexpr double kRounding = 1e-9;
  return std::ranges::equal(a.numbers, b.numbers, [](double x, double y) { return std::abs(x - y) <= kRounding; });
}

// All mistakes of a case, and first none.
std::vector<Mistake> mistakes_of(const Case& c) {
  const at::NoGradGuard no_grad;
  std::vector<Mistake> all{{}};
  for (const std::uint64_t seed : {c.seed, c.seed + 1}) {
    Case seeded = c;
    seeded.seed = seed;
    const Observation of = test::unanswered(seeded, resolve_lengths(seeded), test::simulated_sharding(), c.cp_size);
    const DenseProblem dense(of);
    const Hypotheses library = all_hypotheses(dense, {.failing = all_results()});
    std::size_t number = 0;
    all[number++].numbers.push_back(projection_of(test::simulated(dense, nullptr, {})));
    for (int i = 0; i < static_cast<int>(library.size()); ++i) {
      const Hypothesis& hypothesis = library[static_cast<std::size_t>(i)];
      for (const Attempt& attempt : ways_to_make(hypothesis)) {
        const bool backward = attempt.passes == Attempt::Passes::backward && !hypothesis.backward_id.empty();
        if (number == all.size()) {
          all.push_back({.hypothesis = i,
                         .attempt = attempt,
                         .id = backward ? hypothesis.backward_id : hypothesis.id,
                         .numbers = {}});
        }
        all[number++].numbers.push_back(projection_of(test::simulated(dense, &hypothesis, attempt)));
      }
    }
  }
  return all;
}

// A mistake, and the ids of all mistakes that give the same numbers: two or more.
struct Alike {
  Mistake first;
  std::set<std::string> ids;
};

std::vector<Alike> alike_mistakes(const Case& c) {
  std::vector<Alike> groups;
  const std::vector<Mistake> all = mistakes_of(c);
  for (const Mistake& mistake : all) {
    if (same_numbers(mistake, all.front())) continue;
    const auto known = std::ranges::find_if(groups, [&](const Alike& g) { return same_numbers(g.first, mistake); });
    if (known == groups.end()) {
      groups.push_back({.first = mistake, .ids = {mistake.id}});
    } else {
      known->ids.insert(mistake.id);
    }
  }
  std::erase_if(groups, [](const Alike& group) { return group.ids.size() < 2; });
  return groups;
}

Case tiny_case() {
  Case c = verify::test::small_case();
  c.batch = 1;
  c.seqlen_q = c.seqlen_kv = 8;
  return c;
}

std::vector<Case> cases_with_alike_mistakes() {
  Case causal = tiny_case();
  causal.causal = true;
  Case window = tiny_case();
  window.window = {2, 1};
  Case pack = tiny_case();
  pack.layout = Layout::thd;
  pack.causal = true;
  pack.pad_between_seqs = true;
  pack.batch = 2;
  pack.seqlens = {{7, 3}};
  return {causal, window, pack};
}

class AlikeMistakes : public testing::TestWithParam<std::size_t> {};

TEST_P(AlikeMistakes, AreNeverCertain) {
  const Case c = cases_with_alike_mistakes().at(GetParam());
  int asked = 0;
  for (const Alike& group : alike_mistakes(c)) {
    const test::Diagnosed answer = test::diagnosed_on_threads(c, [&] {
      return std::make_unique<test::SimulatedAttention>(all_results(), group.first.hypothesis, group.first.attempt);
    });
    if (!answer.failed) continue;
    ++asked;
    EXPECT_NE(answer.diagnosis.certainty, Certainty::certain) << test::text_of(answer.diagnosis);
    EXPECT_THAT(ids_of(answer.diagnosis), IsSupersetOf(group.ids)) << test::text_of(answer.diagnosis);
  }
  EXPECT_GT(asked, 0);
}

INSTANTIATE_TEST_SUITE_P(, AlikeMistakes, testing::Range<std::size_t>(0, cases_with_alike_mistakes().size()));

}  // namespace
}  // namespace cp_pool::diagnosis
