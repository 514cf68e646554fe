// Verdicts on failures (--triage), and the replays that they rest on, as texts for people.
#pragma once

#include <string>

#include "driver/events.h"

namespace cp_pool {

// "STATE_LEAK (2 of 2), by ID"; "REAL (2 of 3)".
std::string verdict_line(const Verdict& verdict);

// "verdict: REAL (2 of 3)", and the evidence below it, a sentence a line. Each line ends in a newline.
std::string verdict_text(const Verdict& verdict);

// "replay 3: passes alone: ID", "replay 4: crash after 7 cases, from FIRST on: ID".
std::string replay_text(const CaseReplayed& event);

}  // namespace cp_pool
