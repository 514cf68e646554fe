// Writes responses to the driver.
#pragma once

#include <functional>

#include "worker/protocol/messages.h"

namespace cp_pool {

// Writes the whole response, in as many writes as the pipe needs. An error of writing is ignored, because a driver that
// is gone also ends stdin. A result longer than the protocol allows is written without its checks, and its reason says
// so. half_way: called when half of the response has been written.
void write_response(int fd, const protocol::Event& event, const std::function<void()>& half_way = {});

}  // namespace cp_pool
