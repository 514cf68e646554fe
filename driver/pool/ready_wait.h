// Waits for a descriptor without being woken for another one.
#pragma once

#include <functional>

#include <asio/error_code.hpp>
#include <asio/posix/stream_descriptor.hpp>

namespace cp_pool {

// Calls `done` once `descriptor` is ready for `what`, or with the error of a wait that was cancelled. Asio's own
// async_wait may end early: a descriptor that is registered while the events of a batch are being handled can take the
// place of one that was closed in the same batch, and is then told that one's events
// (asio/detail/impl/epoll_reactor.ipp). Reads and writes find nothing and wait on; a wait would be believed. `done`
// keeps the owner of `descriptor` alive.
void wait_until_ready(asio::posix::stream_descriptor& descriptor, asio::posix::descriptor_base::wait_type what,
                      std::function<void(asio::error_code)> done);

}  // namespace cp_pool
