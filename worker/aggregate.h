// Makes the result of a case from the outcomes of all ranks.
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
  std::vector<RankOutcome> outcomes;  // in order of arrival; ranks that were not freed are missing
  bool cancelled = false;
  std::vector<int> absent = {};               // ranks that had not come to the barrier after the case when it was ended
  std::optional<protocol::PerfRequest> perf;  // of the request
  std::optional<std::int64_t> diagnosis_ms = std::nullopt;  // likewise
};

// The outcome is the first that applies: cancelled; fail (a rank has a wrong answer); error or timeout (a rank failed
// by itself: an exception goes before a timeout, a timeout before a lost connection); skip (also where a library
// refused on one rank what the case asks, and nothing worse happened); pass. Where every rank has its verdict, a failed
// barrier after the case leaves it standing. `ranks` starts with the rank that explains the outcome; ranks that were
// only freed from a collective are marked aborted. `healthy` is left true: the caller decides.
protocol::ResultEvent aggregate(const CaseSummary& summary);

// Whether the ranks can be asked why the case of this result failed: asked for, and every rank has finished the case
// and kept what it takes.
bool can_be_diagnosed(const CaseSummary& summary, const protocol::ResultEvent& result);

// The diagnosis of this case that the ranks have come to. answers: of the ranks that came back. Rank 0's stands if
// every rank came to the barrier behind it. Else nothing is known, and the cause names the failure of a rank and the
// trouble, a sentence that may be empty.
protocol::DiagnosisEvent aggregate_diagnosis(const CaseSummary& summary, const std::vector<DiagnosisDone>& answers,
                                             const std::string& trouble);

// The failure that explains the others; nullptr if no rank has one.
const RankOutcome* find_cause(const std::vector<RankOutcome>& outcomes);

// "rank 3: text"; a text that starts so already, like those of communicators, as it is.
std::string name_rank(const RankOutcome& outcome, const std::string& text);

// True if every rank reported a verdict, so that only the barrier after the case can have failed.
bool all_have_verdicts(const CaseSummary& summary);

}  // namespace cp_pool
