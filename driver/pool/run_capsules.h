// A capsule of each failure of a run: written at once, so that it is there when the driver is killed later, and again
// when a verdict has come.
#pragma once

#include "driver/pool/run_context.h"

namespace cp_pool {

// run: with a history. Both tell of a capsule that cannot be written as of a lost output.

// Of the failure that the history has noted last, with all that its pool had got before.
void write_last_capsule(RunContext& run);

// Of each failure that has a verdict, with the cases that it needs by that.
void write_capsules(RunContext& run, const Verdicts& verdicts);

}  // namespace cp_pool
