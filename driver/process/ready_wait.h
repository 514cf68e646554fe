// Waits for a file descriptor without false wake-ups.
#pragma once

#include <functional>

#include <asio/error_code.hpp>
#include <asio/posix/stream_descriptor.hpp>

namespace cp_pool {

// Calls `done` when `descriptor` is ready for `what`, or with the error of a wait that was cancelled. Asio's own
// async_wait may end too early: while Asio handles a batch of events, a newly registered descriptor can take the place
// of one that was closed in the same batch, and then gets the events of that one (asio/detail/impl/epoll_reactor.ipp).
// A read or write then finds nothing and waits on, but a wait would be taken for real. `done` must keep the owner of
// `descriptor` alive.
void wait_until_ready(asio::posix::stream_descriptor& descriptor, asio::posix::descriptor_base::wait_type what,
                      std::function<void(asio::error_code)> done);

}  // namespace cp_pool
