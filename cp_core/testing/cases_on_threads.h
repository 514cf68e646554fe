// Runs cases on ranks that are threads of this process, for tests.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "cases/case.h"
#include "cp_core/builtin/builtin_implementation.h"

namespace cp_pool::verify::test {

// A small valid case to start from: fp32, bshd, p2p on 2 ranks, 16 tokens, 2 heads of dimension 8.
Case small_case();

// A thd case with one key and one query besides padding, and with max_logit. The score is negative in about half of its
// 8 heads.
Case one_key_case();

// Scores are around +-100, so that the lse of the parts of a row differ by tens. 3 ranks, fp32, p2p, causal, with
// max_logit.
Case steep_case();

// A learnable sink that is larger than every score in about half of the 8 heads, with max_logit.
Case high_sink_case();
// Scores around -100, forward and backward; and around -65536, fp32 and forward only.
Case low_case();
Case lowest_case();

// Most scores are near a softcap, and there is a bias.
Case capped_case();
// Two documents, of which the second sees some of the first. Slices share queries, and have more keys or more queries.
Case documents_case();
// Two cases of one shape with different seeds, with a bias, a sink and max_logit.
std::vector<Case> twin_cases();

// A small valid case in which every field is random: all communication types, layouts, masks and dtypes, 1 to 8 ranks,
// sometimes in two groups, with small, ordinary and large scores.
Case random_case(std::mt19937_64& generator);

// The case as one line of JSON, for messages.
std::string text_of(const Case& c);

// Returns one report per rank, in rank order; for a case with several groups, per rank of the world. windows: whether
// the communicators have windows.
std::vector<RankReport> run_on_threads(const Case& c, bool windows = false);

// Returns the first fault of any rank ("rank 1: dq: ..."); empty if all ranks passed.
std::string fault_of(const std::vector<RankReport>& reports);

}  // namespace cp_pool::verify::test
