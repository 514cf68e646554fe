// The signals that stop what this process does.
#pragma once

#include <chrono>

#include <asio/signal_set.hpp>

namespace cp_pool {

// timeout(1) and a terminal's hang-up send two at once, which are one.
inline constexpr std::chrono::milliseconds kSameSignal{100};

// Adds SIGHUP, unless the process ignores it, as under nohup.
void watch_for_hangup(asio::signal_set& signals);

}  // namespace cp_pool
