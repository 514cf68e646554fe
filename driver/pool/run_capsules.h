// Writes a capsule of each failure of a run, when the run and its triage are over.
#pragma once

#include "driver/pool/run_context.h"

namespace cp_pool {

// run: with a history. Where there is no verdict, the whole history is kept. A capsule that cannot be written is told
// as a lost output.
void write_capsules(RunContext& run, const Verdicts& verdicts);

}  // namespace cp_pool
