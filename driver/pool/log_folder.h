// Where --run-dir keeps the logs of the pools.
#pragma once

#include <filesystem>

#include "driver/events.h"

namespace cp_pool {

// RUN_DIR/pools/cpu-2-gen1.
std::filesystem::path log_folder(const std::filesystem::path& run_dir, const PoolId& pool);

// Removes the logs that an earlier run has left there; what has another name stays. Throws
// std::filesystem::filesystem_error.
void remove_old_logs(const std::filesystem::path& run_dir);

}  // namespace cp_pool
