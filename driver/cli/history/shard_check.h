// Checks whether shards (--shard K/N) make up the whole selection.
#pragma once

#include <string>
#include <vector>

#include "driver/core/events.h"

namespace cp_pool {

// Returns sentences about the shards that are missing among these runs, and about cases that no shard has, that several
// have, or that were not selected. Runs that are no shards do not count, and a shard that was run again counts once.
// Empty: nothing is missing.
std::vector<std::string> missing_of_shards(const std::vector<RunStarted>& runs);

}  // namespace cp_pool
