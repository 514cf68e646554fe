// The library, held against itself: an implementation that is wrong as a hypothesis has it is diagnosed as that, and as
// nothing else for certain.
#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/testing/diagnosed_on_threads.h"
#include "cp_core/diagnosis/testing/simulated_attention.h"
#include "cp_core/testing/cases_on_threads.h"

namespace cp_pool::diagnosis {
namespace {

using test::SimulatedAttention;

Case dense_case() {
  Case c = verify::test::small_case();
  c.seqlen_q = 16;
  c.seqlen_kv = 24;
  c.heads = 4;
  c.kv_heads = 2;
  c.causal = true;
  c.window = {7, 0};
  c.bias = BiasShape::shape_1hss;
  c.softmax = SoftmaxType::learnable;
  c.max_logit = true;
  return c;
}

Case packed_case() {
  Case c = verify::test::small_case();
  c.layout = Layout::thd;
  c.cp_size = 3;
  c.batch = 2;
  c.seqlen_q = c.seqlen_kv = 24;
  c.seqlens = {{22, 13}};
  c.pad_between_seqs = true;
  c.heads = 6;
  c.kv_heads = 3;
  c.window = {9, 5};
  c.bias = BiasShape::shape_11ss;
  return c;
}

Case chunked_case() {
  Case c = verify::test::small_case();
  c.comm = CommType::a2a;
  c.seqlen_q = c.seqlen_kv = 24;
  c.heads = 8;
  c.kv_heads = 4;
  c.chunk = 5;
  return c;
}

// The hypotheses of a case, as a library of which these results fail.
Hypotheses library_of(const Case& c, const std::vector<std::string>& failing) {
  SimulatedAttention right(failing, -1, {});
  const SequenceLengths lengths = resolve_lengths(c);
  Observation of{.c = c, .lengths = lengths, .sharding = right.sharding(c, lengths)};
  of.inputs = verify::make_inputs(verify::canonical_problem(c, lengths));
  of.results.resize(static_cast<std::size_t>(c.cp_size));
  const World world(of);
  return all_hypotheses(world, {.failing = failing});
}

// Diagnoses every `stride`-th mistake of a case that shows in it.
void diagnose_library(const Case& c, const std::vector<std::string>& failing, int stride) {
  const Hypotheses all = library_of(c, failing);
  for (int i = 0; i < static_cast<int>(all.size()); i += stride) {
    const Hypothesis& hypothesis = all[static_cast<std::size_t>(i)];
    if (hypothesis.shows) continue;
    const auto make = [&] { return std::make_unique<SimulatedAttention>(failing, i, Attempt{}); };
    const test::Diagnosed diagnosed = test::diagnosed_on_threads(c, make);
    if (!diagnosed.failed) continue;
    const Diagnosis& found = diagnosed.diagnosis;
    const bool named = found.id == hypothesis.id || std::ranges::count(found.others, hypothesis.id) > 0;
    EXPECT_TRUE(named) << hypothesis.id << ": " << hypothesis.says << "\n" << test::text_of(found);
  }
}

int stride(int often) {
  return std::getenv("CP_POOL_WHOLE_LIBRARY") != nullptr ? 1 : often;
}

TEST(Library, NamesItsOwnMistakesOfTheWholeStep) {
  const std::vector<std::string> all{"out", "lse", "max_logit", "dq", "dk", "dv", "dbias", "dsink"};
  diagnose_library(dense_case(), all, stride(47));
  diagnose_library(packed_case(), all, stride(59));
  diagnose_library(chunked_case(), all, stride(53));
}

TEST(Library, NamesItsOwnMistakesOfSingleGradients) {
  for (const std::vector<std::string>& failing :
       {std::vector<std::string>{"dq"}, {"dk", "dv"}, {"dv"}, {"dbias"}, {"dsink"}}) {
    diagnose_library(dense_case(), failing, stride(101));
    diagnose_library(packed_case(), failing, stride(103));
  }
}

TEST(Library, SaysNothingOfWhatIsRight) {
  for (const Case& c : {dense_case(), packed_case(), chunked_case()}) {
    const auto make = [&] { return std::make_unique<SimulatedAttention>(std::vector<std::string>(), -1, Attempt{}); };
    EXPECT_FALSE(test::diagnosed_on_threads(c, make).failed);
  }
}

}  // namespace
}  // namespace cp_pool::diagnosis
