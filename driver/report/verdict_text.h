// Texts for people about verdicts on failures (--triage) and the replays behind them.
#pragma once

#include <string>

#include "driver/core/events.h"

namespace cp_pool {

// Returns "STATE_LEAK (2 of 2), by ID" or "REAL (2 of 3)".
std::string verdict_line(const Verdict& verdict);

// Returns "verdict: REAL (2 of 3)", and below it the evidence, one sentence a line. Each line ends with a newline.
std::string verdict_text(const Verdict& verdict);

// Returns "replay 3: pass alone: ID" or "replay 4: crash after 7 cases, from FIRST on: ID".
std::string replay_text(const CaseReplayed& event);

}  // namespace cp_pool
