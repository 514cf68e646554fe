// Decoding as our own attention does it: every rank has all queries and attends its own keys with them, the ranks
// gather each other's output and lse, and each merges the parts.
#pragma once

#include "cp_core/run_case/implementation.h"

namespace cp_pool {

// setting: of a case for which merges_parts() (cases/comm_facts.h) holds.
std::unique_ptr<Step> make_parts_step(const StepSetting& setting, const verify::Shards& shards);

}  // namespace cp_pool
