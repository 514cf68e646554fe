#include "driver/ranks/pipes.h"

#include <optional>
#include <unistd.h>

#include <asio/error.hpp>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using Descriptor = asio::posix::stream_descriptor;

struct BarePipe {
  BarePipe() {
    int ends[2] = {-1, -1};
    if (::pipe(ends) == 0) {
      read = UniqueFd{ends[0]};
      write = UniqueFd{ends[1]};
    }
  }
  UniqueFd read;
  UniqueFd write;
};

// Two pipes end at the same time. The handler that runs first closes both and opens a third pipe, which takes the place
// of the second in Asio, whose event is still to be handled. The third pipe has no event of its own.
class PlaceThatIsTakenAgain : public ::testing::Test {
 protected:
  template <typename Wait>
  void run(const Wait& wait_on_third) {
    for (std::unique_ptr<Descriptor>& end : ends_) {
      BarePipe pipe;
      end = std::make_unique<Descriptor>(io_, pipe.read.release());
    }  // the write end is closed
    for (std::unique_ptr<Descriptor>& end : ends_) {
      end->async_wait(Descriptor::wait_read, [&](asio::error_code error) {
        if (error || third_) return;
        for (std::unique_ptr<Descriptor>& each : ends_) each.reset();
        third_.emplace(io_, pipe_.read.release());
        wait_on_third(*third_);
      });
    }
    while (!over_ && io_.poll() > 0) {
    }
  }

  asio::io_context io_;
  std::unique_ptr<Descriptor> ends_[2];
  BarePipe pipe_;
  std::optional<Descriptor> third_;
  bool over_ = false;
};

// If this test fails, Asio has changed and wait_until_ready is no longer needed.
TEST_F(PlaceThatIsTakenAgain, EndsAWaitOfAsioEarly) {
  run([&](Descriptor& third) {
    third.async_wait(Descriptor::wait_read, [&](asio::error_code error) { over_ = !error; });
  });
  EXPECT_TRUE(over_);
}

TEST_F(PlaceThatIsTakenAgain, EndsNoWaitUntilReady) {
  run([&](Descriptor& third) {
    wait_until_ready(third, Descriptor::wait_read, [&](asio::error_code error) { over_ = !error; });
  });
  EXPECT_FALSE(over_);
  pipe_.write = UniqueFd{};
  io_.run();
  EXPECT_TRUE(over_) << "its own end is told";
}

TEST(WaitUntilReady, TellsThatItWasCancelled) {
  asio::io_context io;
  BarePipe pipe;
  Descriptor end(io, pipe.read.release());
  asio::error_code told;
  wait_until_ready(end, Descriptor::wait_read, [&](asio::error_code error) { told = error; });
  end.close();
  io.run();
  EXPECT_EQ(told, asio::error::operation_aborted);
}

}  // namespace
}  // namespace cp_pool
