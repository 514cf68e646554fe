// No false alarm: random cases over all fields pass. CP_POOL_RANDOM_CASES sets how many (default 500),
// CP_POOL_RANDOM_SEED which. A failing case is shrunk to the simplest that still fails.
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cases/case_json.h"
#include "cp_core/verify/test_support.h"

namespace cp_pool::verify {
namespace {

std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::stoull(text);
}

std::string failure_of(const Case& c) {
  try {
    return test::fault_of(test::run_on_threads(c));
  } catch (const std::exception& error) {
    return error.what();
  }
}

// Each makes a case simpler, or leaves it.
std::vector<Case> simpler_cases(const Case& c) {
  std::vector<Case> cases;
  const auto with = [&](auto change) {
    Case simpler = c;
    change(simpler);
    if (simpler != c && !find_problem(simpler) && skip_reason(simpler).empty()) cases.push_back(simpler);
  };
  const Case plain;
  with([](Case& s) { s.bias.reset(); });
  with([](Case& s) { s.softmax = SoftmaxType::vanilla; });
  with([](Case& s) { s.max_logit = false; });
  with([](Case& s) { s.training = false; });
  with([](Case& s) { s.pad_between_seqs = false; });
  with([](Case& s) { s.layout = Layout::bshd, s.pad_between_seqs = false; });
  with([](Case& s) { s.comm = CommType::p2p; });
  with([](Case& s) { s.chunk = 0; });
  with([](Case& s) { s.causal = false; });
  with([](Case& s) { s.window[0] = kInfiniteWindow; });
  with([](Case& s) { s.window[1] = kInfiniteWindow; });
  with([](Case& s) { s.dtype = DType::fp32; });
  with([](Case& s) { s.seqlen_kv = s.seqlen_q; });
  with([](Case& s) { s.cp_size /= 2; });
  with([](Case& s) { s.batch = 1; });
  with([](Case& s) { s.seqlen_q = s.seqlen_kv = std::int64_t{2} * s.cp_size; });
  with([](Case& s) { s.heads = s.kv_heads; });
  with([](Case& s) { s.heads = s.kv_heads = 1; });
  with([](Case& s) { s.head_dim_v = s.head_dim_qk; });
  with([](Case& s) { s.head_dim_qk = s.head_dim_v = 4; });
  with([&](Case& s) { s.seed = plain.seed; });
  return cases;
}

Case shrink(Case failing) {
  for (bool shrunk = true; shrunk;) {
    shrunk = false;
    for (const Case& simpler : simpler_cases(failing)) {
      if (failure_of(simpler).empty()) continue;
      failing = simpler;
      shrunk = true;
      break;
    }
  }
  return failing;
}

TEST(RandomCases, AllPass) {
  std::mt19937_64 generator(number_from_environment("CP_POOL_RANDOM_SEED", 20240607));
  const auto wanted = number_from_environment("CP_POOL_RANDOM_CASES", 500);
  for (std::uint64_t run = 0; run < wanted;) {
    const Case c = test::random_case(generator);
    ASSERT_FALSE(find_problem(c)) << test::text_of(c);
    if (!skip_reason(c).empty()) continue;
    ++run;
    const std::string failure = failure_of(c);
    if (failure.empty()) continue;
    const Case smallest = shrink(c);
    FAIL() << "case " << run << ": " << failure << "\n"
           << test::text_of(c) << "\nsmallest that fails: " << failure_of(smallest) << "\n"
           << test::text_of(smallest);
  }
}

}  // namespace
}  // namespace cp_pool::verify
