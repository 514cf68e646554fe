// Writes a capsule of each failure of a run, when the run and its triage are over.
#pragma once

#include <cstddef>
#include <map>

#include "driver/pool/run_context.h"
#include "driver/verdict.h"

namespace cp_pool {

// run: with a history. verdicts: by the place of the failure in it; where there is none, the whole history is kept. A
// capsule that cannot be written is told as a lost output.
void write_capsules(RunContext& run, const std::map<std::size_t, Verdict>& verdicts);

}  // namespace cp_pool
