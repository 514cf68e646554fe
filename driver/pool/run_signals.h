// Signals that stop a run or a service.
#pragma once

#include <chrono>

#include <asio/signal_set.hpp>

namespace cp_pool {

// Two signals within this time count as one: timeout(1) and a terminal's hang-up send two at once.
inline constexpr std::chrono::milliseconds kSameSignal{100};

// Adds SIGHUP to the set, unless the process ignores it, as under nohup.
void watch_for_hangup(asio::signal_set& signals);

}  // namespace cp_pool
