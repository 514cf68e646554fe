// The folders below --run-dir that hold the logs of pools.
#pragma once

#include <filesystem>

#include "driver/events.h"

namespace cp_pool {

// Returns RUN_DIR/pools/cpu-2-gen1 and the like.
std::filesystem::path log_folder(const std::filesystem::path& run_dir, const PoolId& pool);

// Removes the logs that an earlier run has left there. Files with other names are kept. Throws
// std::filesystem::filesystem_error.
void remove_old_logs(const std::filesystem::path& run_dir);

}  // namespace cp_pool
