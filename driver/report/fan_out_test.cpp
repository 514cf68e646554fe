#include "driver/report/fan_out.h"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/report/output_file.h"
#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

class Recorder : public EventSink {
 public:
  void on_event(const Event& event) override { types.push_back(event.index()); }
  void on_tick() override { ++ticks; }
  int ticks = 0;
  std::vector<std::size_t> types;
};

class Broken : public EventSink {
 public:
  void on_event(const Event&) override {
    ++calls;
    throw std::runtime_error("disk full");
  }
  int calls = 0;
};

TEST(FanOut, EveryViewGetsEveryEventInOrder) {
  Recorder a;
  Recorder b;
  FanOut fan_out{[](const std::string&) {}};
  fan_out.add(a);
  fan_out.add(b);
  fan_out.on_event(test::run_started(1));
  fan_out.on_event(test::run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_THAT(a.types, ::testing::ElementsAre(0U, std::variant_size_v<AnyEvent> - 1));
  EXPECT_EQ(a.types, b.types);
  EXPECT_FALSE(fan_out.failed());
}

TEST(FanOut, EveryViewHearsThatTimePasses) {
  Recorder a;
  Recorder b;
  FanOut fan_out{[](const std::string&) {}};
  fan_out.add(a);
  fan_out.add(b);
  fan_out.on_tick();
  EXPECT_EQ(a.ticks, 1);
  EXPECT_EQ(b.ticks, 1);
}

TEST(FanOut, AViewThatCannotWriteIsNamedOnceAndTheOthersGoOn) {
  Broken broken;
  Recorder other;
  std::vector<std::string> errors;
  FanOut fan_out{[&](const std::string& error) { errors.push_back(error); }};
  fan_out.add(broken);
  fan_out.add(other);
  fan_out.on_event(test::run_started(1));
  fan_out.on_event(test::run_started(1));
  EXPECT_THAT(errors, ::testing::ElementsAre("disk full"));
  EXPECT_EQ(broken.calls, 1);
  EXPECT_EQ(other.types.size(), 2U);
  EXPECT_TRUE(fan_out.failed());
}

class Unread : public EventSink {
 public:
  void on_event(const Event&) override {}
  void on_tick() override { throw ReaderGone("its reader is gone"); }
};

class FanOutWithoutReader : public ::testing::Test {
 protected:
  Unread unread;
  Broken broken;
  Recorder other;
  std::vector<std::string> errors;
  FanOut fan_out{[this](const std::string& error) { errors.push_back(error); }};
};

TEST_F(FanOutWithoutReader, EndsTheRunIfNoOutputIsLeft) {
  fan_out.add_listener(other);
  fan_out.add(unread);
  fan_out.on_event(test::run_started(1));
  EXPECT_THROW(fan_out.on_tick(), ReaderGone);
  EXPECT_THAT(errors, ::testing::ElementsAre("its reader is gone"));
  fan_out.on_tick();  // a run that ends may still tick
  EXPECT_TRUE(fan_out.failed());
}

TEST_F(FanOutWithoutReader, LetsTheRunGoOnForAnotherOutput) {
  fan_out.add(unread);
  fan_out.add(other);
  fan_out.on_tick();
  EXPECT_EQ(other.ticks, 1);
}

TEST_F(FanOutWithoutReader, LetsTheRunGoOnForAFolder) {
  fan_out.add(unread);
  fan_out.expect_other_outputs();
  fan_out.on_tick();
  EXPECT_TRUE(fan_out.failed());
}

TEST_F(FanOutWithoutReader, EndsTheRunWhenTheLastOutputIsLost) {
  fan_out.add(unread);
  fan_out.add(broken);
  fan_out.on_tick();
  EXPECT_THROW(fan_out.on_event(test::run_started(1)), ReaderGone);
}

TEST(FanOut, AFullDiskAloneEndsNoRun) {
  Broken broken;
  FanOut fan_out{[](const std::string&) {}};
  fan_out.add(broken);
  fan_out.on_event(test::run_started(1));
  EXPECT_TRUE(fan_out.failed());
}

}  // namespace
}  // namespace cp_pool
