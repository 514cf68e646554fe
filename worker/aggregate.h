// Combines the outcomes of all ranks into the result of a case.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/protocol/messages.h"
#include "worker/rank_messages.h"

namespace cp_pool {

struct CaseSummary {
  std::int64_t seq = 0;
  int world_size = 1;
  std::vector<RankOutcome> outcomes;  // in order of arrival; ranks that did not come back are missing
  bool cancelled = false;
  std::vector<int> absent = {};               // ranks that had not reached the barrier after the case when it was ended
  std::optional<protocol::PerfRequest> perf;  // options of the request
  std::optional<std::int64_t> diagnosis_ms = std::nullopt;  // time for a diagnosis; unset if none is wanted
};

// Returns the result of a case. Its outcome is the first that applies:
// - cancelled;
// - fail: a rank has a wrong answer;
// - error or timeout: a rank failed by itself. An exception takes precedence over a timeout, and a timeout over a lost
//   connection;
// - skip: also if a library refused the case on one rank, and nothing worse happened;
// - pass.
// If every rank has a verdict, a failed barrier after the case does not change the outcome. `ranks` begins with the
// rank that explains the outcome; ranks that failed only because a collective was aborted are marked aborted. `healthy`
// stays true: the caller decides it.
protocol::ResultEvent aggregate(const CaseSummary& summary);

// Whether the ranks can diagnose why the case of this result failed: a diagnosis is requested, and every rank has
// finished the case and kept the data that a diagnosis needs.
bool can_be_diagnosed(const CaseSummary& summary, const protocol::ResultEvent& result);

// Returns the diagnosis of this case. answers: those of the ranks that came back; the first rank of each group has a
// diagnosis. The surest is returned if every rank came to the barrier after it. Else the diagnosis is unknown, and its
// cause names the failure of a rank and `trouble`, a sentence that may be empty.
protocol::DiagnosisEvent aggregate_diagnosis(const CaseSummary& summary, const std::vector<DiagnosisDone>& answers,
                                             const std::string& trouble);

// The failure that explains the others; nullptr if no rank has one.
const RankOutcome* find_cause(const std::vector<RankOutcome>& outcomes);

// Returns "rank 3: text". A text that already begins in this way, like those of communicators, is returned unchanged.
std::string name_rank(const RankOutcome& outcome, const std::string& text);

}  // namespace cp_pool
