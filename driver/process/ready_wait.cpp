#include "driver/process/ready_wait.h"

#include <poll.h>
#include <utility>

namespace cp_pool {

namespace {

using WaitType = asio::posix::descriptor_base::wait_type;

bool is_ready(int fd, WaitType what) {
  const auto events = what == WaitType::wait_read ? POLLIN : what == WaitType::wait_write ? POLLOUT : POLLPRI;
  // poll() reports POLLERR and POLLHUP whatever the events.
  pollfd now{.fd = fd, .events = static_cast<short>(events), .revents = 0};
  return ::poll(&now, 1, 0) != 0;
}

}  // namespace

void wait_until_ready(asio::posix::stream_descriptor& descriptor, WaitType what,
                      std::function<void(asio::error_code)> done) {
  descriptor.async_wait(what, [&descriptor, what, done = std::move(done)](asio::error_code error) mutable {
    if (!error && descriptor.is_open() && !is_ready(descriptor.native_handle(), what)) {
      return wait_until_ready(descriptor, what, std::move(done));
    }
    done(error);
  });
}

}  // namespace cp_pool
