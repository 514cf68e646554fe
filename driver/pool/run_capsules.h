// Writes a capsule for each failure of a run: at once, so that it exists if the driver is killed later, and again when
// triage has a verdict.
#pragma once

#include "driver/pool/run_context.h"

namespace cp_pool {

// run: must have a history. If a capsule cannot be written, both functions report a lost output.

// Writes the capsule of the latest failure in the history, with all cases that its pool got before.
void write_last_capsule(RunContext& run);

// Writes a capsule for each failure that has a verdict, with only those cases that the verdict shows to be needed.
void write_capsules(RunContext& run, const Verdicts& verdicts);

}  // namespace cp_pool
