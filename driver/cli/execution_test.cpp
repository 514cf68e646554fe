#include "driver/cli/execution.h"

#include <stdexcept>

#include <gmock/gmock.h>

#include "driver/testing/attention.h"
#include "driver/testing/command_error.h"
#include "driver/testing/example_events.h"
#include "driver/testing/scoped_variable.h"

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

class Unread : public EventSink {
 public:
  void on_event(const Event&) override {}
  void on_tick() override { throw ReaderGone("its reader is gone"); }
};

class SinkListOfViews : public ::testing::Test {
 protected:
  Unread unread;
  Broken broken;
  Recorder other;
  std::vector<std::string> errors;
  SinkList sink_list{[this](const std::string& error) { errors.push_back(error); }};
};
using FanOutWithoutReader = SinkListOfViews;

TEST_F(SinkListOfViews, GivesEveryOneEveryEventInOrderAndTellsItThatTimePasses) {
  Recorder a;
  sink_list.add(a);
  sink_list.add(other);
  sink_list.on_event(test::run_started(1));
  sink_list.on_event(test::run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0}));
  sink_list.on_tick();
  EXPECT_THAT(a.types, ::testing::ElementsAre(0U, std::variant_size_v<AnyEvent> - 1));
  EXPECT_EQ(a.types, other.types);
  EXPECT_EQ(a.ticks, 1);
  EXPECT_EQ(other.ticks, 1);
  EXPECT_FALSE(sink_list.failed());
}

TEST_F(SinkListOfViews, NamesOneThatCannotWriteOnceAndTheOthersGoOn) {
  sink_list.add(broken);
  sink_list.add(other);
  sink_list.on_event(test::run_started(1));
  sink_list.on_event(test::run_started(1));
  EXPECT_THAT(errors, ::testing::ElementsAre("disk full"));
  EXPECT_EQ(broken.calls, 1);
  EXPECT_EQ(other.types.size(), 2U);
  EXPECT_TRUE(sink_list.failed());
}

TEST_F(FanOutWithoutReader, EndsTheRunIfNoOutputIsLeft) {
  sink_list.add_listener(other);
  sink_list.add(unread);
  sink_list.on_event(test::run_started(1));
  EXPECT_THROW(sink_list.on_tick(), ReaderGone);
  EXPECT_THAT(errors, ::testing::ElementsAre("its reader is gone"));
  sink_list.on_tick();  // a run that ends may still tick
  EXPECT_TRUE(sink_list.failed());
}

TEST_F(FanOutWithoutReader, LetsTheRunGoOnForAnotherOutput) {
  sink_list.add(unread);
  sink_list.add(other);
  sink_list.on_tick();
  EXPECT_EQ(other.ticks, 1);
}

TEST_F(FanOutWithoutReader, LetsTheRunGoOnForAFolder) {
  sink_list.add(unread);
  sink_list.expect_other_outputs();
  sink_list.on_tick();
  EXPECT_TRUE(sink_list.failed());
}

TEST_F(FanOutWithoutReader, EndsTheRunWhenTheLastOutputIsLost) {
  sink_list.add(unread);
  sink_list.add(broken);
  sink_list.on_tick();
  EXPECT_THROW(sink_list.on_event(test::run_started(1)), ReaderGone);
}

TEST_F(SinkListOfViews, EndsNoRunForAFullDiskAlone) {
  sink_list.add(broken);
  sink_list.on_event(test::run_started(1));
  EXPECT_TRUE(sink_list.failed());
}

Item ranks(const std::string& id, int cp_size, int group = 1) {
  Item named{{.id = id}};
  test::attention(named.payload).cp_size = cp_size;
  test::attention(named.payload).group = group;
  return named;
}

// Returns the error of these faults for a case of two ranks and one of two groups of two.
std::string inject_error(const char* faults) {
  const test::ScopedVariable variable{"CP_POOL_INJECT", faults};
  return test::command_error(ExitCode::usage,
                             [] { expect_injected_ranks({ranks("small/p2p", 2), ranks("large/a2a", 2, 2)}); });
}

TEST(InjectedFaults, HaveARankThatACaseHas) {
  EXPECT_EQ(inject_error("throw@1:inside wrong=dq@3:inside"), "no error");
  EXPECT_EQ(inject_error("throw@1:inside throw@4:inside"),
            "CP_POOL_INJECT: throw@4:inside: no selected case has a rank 4; the largest that it names has 4 ranks");
  EXPECT_EQ(inject_error("throw@3:inside:large/*"), "no error");
  EXPECT_EQ(inject_error("throw@3:inside:small/*"),
            "CP_POOL_INJECT: throw@3:inside:small/*: no selected case has a rank 3; the largest that it names has 2 "
            "ranks");
  EXPECT_EQ(inject_error("throw@0:inside:medium/*"),
            "CP_POOL_INJECT: throw@0:inside:medium/*: no selected case matches medium/*");
}

TEST(InjectedFaults, ThatCannotBeReadAreLeftToTheWorker) {
  for (const char* faults : {"", "throw", "throw@9", "throw@x:inside", "throw@99999999999:inside"}) {
    EXPECT_EQ(inject_error(faults), "no error") << faults;
  }
}

}  // namespace
}  // namespace cp_pool
