// Cases run on ranks that are threads of this process, for tests.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "cases/case.h"
#include "cp_core/own/own_implementation.h"

namespace cp_pool::verify::test {

// A small valid case to start from: fp32, bshd, p2p on 2 ranks, 16 tokens, 2 heads of 8.
Case small_case();

// One key and one query of thd, beside padding, with max_logit: the score of about every second of its 8 heads is
// negative.
Case one_key_case();

// Scores around +-100: parts of a row have lse tens apart. 3 ranks, fp32, p2p, causal, with max_logit.
Case steep_case();

// A learnable sink that in about every second of 8 heads is larger than every score, with max_logit.
Case high_sink_case();

// A small valid case, every field drawn: all communication types, layouts, masks, dtypes, 1 to 8 ranks, some of them
// as two groups, scores small, ordinary and large.
Case random_case(std::mt19937_64& generator);

// The case as one line of JSON, for messages.
std::string text_of(const Case& c);

// One report a rank, in rank order; of a case with several groups, a rank of the world. windows: of the communicators.
std::vector<RankReport> run_on_threads(const Case& c, bool windows = false);

// The first fault of any rank ("rank 1: dq: ..."); empty if all passed.
std::string fault_of(const std::vector<RankReport>& reports);

}  // namespace cp_pool::verify::test
