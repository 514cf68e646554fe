#include <future>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "worker/control_thread.h"
#include "worker/testing/listening_environment.h"

namespace cp_pool {
namespace {

using Clock = GroupSlot::Clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A communicator whose abort lasts until the test ends it.
class SlowToAbort : public Communicator {
 public:
  explicit SlowToAbort(std::thread::id* destroyed_by = nullptr) : destroyed_by_(destroyed_by) {}
  ~SlowToAbort() override {
    if (destroyed_by_ != nullptr) *destroyed_by_ = std::this_thread::get_id();
  }

  void abort() override {
    begun.set_value();
    may_end.get_future().wait();
  }

  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  [[nodiscard]] std::string description() const override { return ""; }
  void set_deadline(Clock::time_point /*deadline*/) override {}
  WorkPtr exchange_many(std::span<const at::Tensor>, int, std::span<const at::Tensor>, int, std::string_view) override {
    return nullptr;
  }
  WorkPtr all_gather(at::Tensor&, const at::Tensor&, std::string_view) override { return nullptr; }
  WorkPtr reduce_scatter(at::Tensor&, const at::Tensor&, std::string_view) override { return nullptr; }
  WorkPtr all_reduce(at::Tensor&, ReduceOp, std::string_view) override { return nullptr; }
  void checked_barrier(std::int64_t, milliseconds) override {}

  std::promise<void> begun;
  std::promise<void> may_end;

 private:
  std::thread::id* destroyed_by_;
};

CpGroups groups_of(std::shared_ptr<Communicator> cp) {
  return {.cp = std::move(cp), .inner = nullptr, .outer = nullptr};
}

TEST(GroupSlots, AreNotEmptiedBeforeAnAbortHasEnded) {
  std::thread::id destroyed_by;
  auto communicator = std::make_shared<SlowToAbort>(&destroyed_by);
  SlowToAbort& slow = *communicator;
  GroupSlot slot;
  slot.put(groups_of(std::move(communicator)), 0);
  std::thread aborter([&] { slot.abort(0); });
  slow.begun.get_future().wait();

  std::future<bool> taken = std::async(std::launch::async, [&] {
    const auto old = slot.take(1, Clock::now() + seconds(60));
    return old && old->cp.use_count() == 1;
  });
  EXPECT_EQ(taken.wait_for(milliseconds(50)), std::future_status::timeout);
  EXPECT_EQ(destroyed_by, std::thread::id());
  slow.may_end.set_value();
  EXPECT_TRUE(taken.get()) << "who takes them has the last of them";
  const std::thread::id by_aborter = aborter.get_id();
  aborter.join();
  EXPECT_NE(destroyed_by, std::thread::id());
  EXPECT_NE(destroyed_by, by_aborter);
}

TEST(GroupSlots, AreGivenUpAtTheDeadlineIfAnAbortDoesNotEnd) {
  auto slow = std::make_shared<SlowToAbort>();
  GroupSlot slot;
  slot.put(groups_of(slow), 0);
  std::thread aborter([&] { slot.abort(std::nullopt); });
  slow->begun.get_future().wait();
  EXPECT_FALSE(slot.take(1, Clock::now() + milliseconds(10)));
  slow->may_end.set_value();
  aborter.join();
}

TEST(GroupSlots, OfAnotherGenerationAreNotAborted) {
  auto communicator = std::make_shared<SlowToAbort>();
  std::future<void> aborted = communicator->begun.get_future();
  communicator->may_end.set_value();
  GroupSlot slot;
  slot.put(groups_of(communicator), 1);
  for (const int other : {0, 2, -1}) slot.abort(other);
  EXPECT_EQ(aborted.wait_for(seconds(0)), std::future_status::timeout);
  const auto old = slot.take(2, Clock::now());
  ASSERT_TRUE(old);
  EXPECT_TRUE(old->cp);
  EXPECT_FALSE(slot.get().cp);
}

class IdleRunner final : public CaseRunner {
 public:
  void reset(const at::Device& /*device*/) override {}
  std::string skip_reason(const Case& /*c*/, const at::Device& /*device*/) override { return ""; }
  std::string backend(const Case& /*c*/, const at::Device& /*device*/) override { return "idle"; }
  RankReport run(const Case& /*c*/, const CpGroups& /*groups*/, const RunOptions& /*options*/) override { return {}; }
};

TEST(ControlThreads, AnswerAProbeWhileAnAbortWaits) {
  auto slow = std::make_shared<SlowToAbort>();
  GroupSlot slot;
  slot.put(groups_of(slow), 0);
  const protocol::RankEnvironment environment = test::listening_environment(1);
  MessageServer server(environment);
  std::promise<std::int64_t> answered;
  server.on_rank0(
      [&](const Bytes& message) { answered.set_value(std::get<Probed>(decode<RankMessage>(message)).token); });
  std::promise<void> stopped;
  {
    IdleRunner runner;
    const ControlThread thread(environment, slot, runner, nullptr, stopped.get_future());
    server.to_control_threads(AbortCommand{0});
    slow->begun.get_future().wait();
    server.to_control_threads(ProbeCommand{3});
    EXPECT_EQ(answered.get_future().get(), 3);
    slow->may_end.set_value();
    stopped.set_value();
    server.to_control_threads(ExitCommand{});
  }
  server.on_rank0(nullptr);
}

}  // namespace
}  // namespace cp_pool
