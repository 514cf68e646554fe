// Adds function names to the stacks in the ranks' stderr without blocking the event loop.
#pragma once

#include <vector>

#include <asio/awaitable.hpp>

#include "driver/core/events.h"
#include "driver/os/wakeup.h"
#include "driver/pool/run_context.h"

namespace cp_pool {

// Frames that cannot be named within kNamingLimit are left as the rank wrote them.
inline constexpr std::chrono::seconds kNamingLimit{3};
asio::awaitable<void> name_frames(RunContext& run, Wakeup& wakeup, std::vector<StderrTail>& tails);

}  // namespace cp_pool
