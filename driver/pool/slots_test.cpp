#include "driver/pool/slots.h"

#include <asio/awaitable.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

class SlotsInLine : public testing::Test {
 protected:
  // Since it was last asked.
  bool was_notified(Wakeup& wakeup) {
    bool woken = false;
    const auto wait = [&]() -> asio::awaitable<void> {
      co_await wakeup.wait();
      woken = true;
    };
    asio::co_spawn(io, wait, asio::detached);
    io.restart();
    io.poll();
    if (woken) return true;
    wakeup.notify();  // ends the wait
    io.restart();
    io.run();
    return false;
  }

  asio::io_context io;
  Wakeup first{io};
  Wakeup second{io};
  Wakeup third{io};
};

TEST_F(SlotsInLine, AreGivenInTheOrderOfTheLineThoughTheNextWouldFit) {
  Slots slots(4);
  slots.enqueue(4, first);
  slots.enqueue(1, second);
  EXPECT_FALSE(slots.try_take(second));
  EXPECT_TRUE(slots.try_take(first));
  EXPECT_FALSE(slots.try_take(second));
  slots.give_back(4);
  EXPECT_TRUE(was_notified(second));
  EXPECT_TRUE(slots.try_take(second));
}

TEST_F(SlotsInLine, AreGivenToAllThatFit) {
  Slots slots(3);
  slots.enqueue(3, first);
  ASSERT_TRUE(slots.try_take(first));
  slots.enqueue(1, second);
  slots.enqueue(2, third);
  slots.give_back(3);
  EXPECT_TRUE(was_notified(second));
  EXPECT_TRUE(slots.try_take(second));
  EXPECT_TRUE(was_notified(third));
  EXPECT_TRUE(slots.try_take(third));
}

TEST_F(SlotsInLine, ARequestForMoreThanThereAreCountsAsAll) {
  Slots slots(2);
  slots.enqueue(4, first);
  EXPECT_TRUE(slots.try_take(first));
  slots.give_back(4);
  slots.enqueue(2, second);
  EXPECT_TRUE(slots.try_take(second));
  slots.enqueue(1, third);
  EXPECT_FALSE(slots.try_take(third)) << "no more came back than there are";
}

TEST_F(SlotsInLine, WhoLeavesMakesRoomForTheNext) {
  Slots slots(2);
  slots.enqueue(1, first);
  ASSERT_TRUE(slots.try_take(first));
  slots.enqueue(2, second);
  slots.enqueue(1, third);
  EXPECT_FALSE(slots.try_take(third));
  slots.leave_line(second);
  EXPECT_TRUE(was_notified(third));
  EXPECT_TRUE(slots.try_take(third));
}

}  // namespace
}  // namespace cp_pool
