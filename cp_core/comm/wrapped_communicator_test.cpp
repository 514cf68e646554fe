#include "cp_core/comm/wrapped_communicator.h"

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/comm/windows.h"

namespace cp_pool {
namespace {

using testing::ElementsAre;

// Rank 1 of 4. Records the calls, and does nothing else.
class NotingCommunicator final : public Communicator, public PeerWindows {
 public:
  std::vector<std::string> calls;

  [[nodiscard]] int rank() const override { return 1; }
  [[nodiscard]] int size() const override { return 4; }
  [[nodiscard]] std::string description() const override { return "notes"; }
  void set_deadline(Clock::time_point) override { calls.emplace_back("set_deadline"); }
  void abort() override { calls.emplace_back("abort"); }
  void synchronize(std::string_view) override { calls.emplace_back("synchronize"); }
  void checked_barrier(std::int64_t, std::chrono::milliseconds) override { calls.emplace_back("checked_barrier"); }
  WorkPtr exchange_many(std::span<const at::Tensor>, int, std::span<const at::Tensor>, int, std::string_view) override {
    return note("exchange_many");
  }
  WorkPtr exchange_all(std::span<const Message>, std::span<const Message>, std::string_view) override {
    return note("exchange_all");
  }
  PeerWindows* windows() override { return this; }
  WorkPtr put_all(std::span<const at::Tensor>, std::span<const at::Tensor>, std::span<const Put>,
                  std::string_view) override {
    return note("put_all");
  }
  WorkPtr all_gather(at::Tensor&, const at::Tensor&, std::string_view) override { return note("all_gather"); }
  WorkPtr reduce_scatter(at::Tensor&, const at::Tensor&, std::string_view) override { return note("reduce_scatter"); }
  WorkPtr all_reduce(at::Tensor&, ReduceOp, std::string_view) override { return note("all_reduce"); }

 private:
  WorkPtr note(const char* operation) {
    calls.emplace_back(operation);
    return nullptr;
  }
};

at::Tensor of_bytes(std::int64_t count) {
  return at::zeros({count}, at::TensorOptions(at::kByte));
}

class CountSent : public ::testing::Test {
 protected:
  // Returns the bytes that were counted since the last call.
  std::int64_t sent() { return std::exchange(sent_, 0); }

  std::int64_t sent_ = 0;
  std::shared_ptr<NotingCommunicator> target_ = std::make_shared<NotingCommunicator>();
  std::shared_ptr<Communicator> cp_ = count_sent({.cp = target_, .inner = nullptr, .outer = nullptr}, sent_).cp;
  at::Tensor received_ = of_bytes(80);
};

TEST_F(CountSent, MessagesToOtherRanksOnce) {
  const std::array sends{of_bytes(3), of_bytes(4)};
  const std::array<Communicator::Message, 3> messages{{{of_bytes(5), 0}, {of_bytes(6), 3}, {of_bytes(7), 3}}};
  static_cast<void>(cp_->exchange_many(sends, 2, {&received_, 1}, 0, ""));
  EXPECT_EQ(sent(), 3 + 4);
  static_cast<void>(cp_->exchange_all(messages, {}, ""));
  EXPECT_EQ(sent(), 5 + 6 + 7);
  EXPECT_THAT(target_->calls, ElementsAre("exchange_many", "exchange_all"));
}

TEST_F(CountSent, TheRectanglesThatARankWritesIntoWindows) {
  ASSERT_NE(cp_->windows(), nullptr);
  const std::array<PeerWindows::Put, 3> puts{
      {{.peer = 0, .block = {.rows = 3, .width = 5, .source_stride = 8, .target_stride = 16}},
       {.peer = 1, .block = {.rows = 1, .width = 100}},  // to itself
       {.peer = 2, .block = {.rows = 1, .width = 7}}}};
  static_cast<void>(cp_->windows()->put_all({&received_, 1}, {&received_, 1}, puts, ""));
  EXPECT_EQ(sent(), 3 * 5 + 7);
  EXPECT_THAT(target_->calls, ElementsAre("put_all"));
}

TEST_F(CountSent, HasWindowsWhereItsTargetHas) {
  const CpGroups without = single_rank_groups();
  EXPECT_EQ(count_sent(without, sent_).cp->windows(), nullptr);
}

TEST_F(CountSent, NothingThatARankSendsToItself) {
  const std::array sends{of_bytes(3), of_bytes(4)};
  static_cast<void>(cp_->exchange_many(sends, 1, {&received_, 1}, 1, ""));
  EXPECT_EQ(sent(), 0);
}

TEST_F(CountSent, CollectivesByWhatHasToReachEachOther) {
  const at::Tensor in = of_bytes(8);
  at::Tensor inout = of_bytes(8);
  static_cast<void>(cp_->all_gather(received_, in, ""));
  EXPECT_EQ(sent(), 3 * 8);
  static_cast<void>(cp_->reduce_scatter(received_, in, ""));
  EXPECT_EQ(sent(), 3 * 2);
  static_cast<void>(cp_->all_reduce(inout, ReduceOp::sum, ""));
  EXPECT_EQ(sent(), 3 * 8);
  EXPECT_THAT(target_->calls, ElementsAre("all_gather", "reduce_scatter", "all_reduce"));
}

TEST_F(CountSent, NothingButPassesOnWhatIsNoOperation) {
  cp_->set_deadline({});
  cp_->synchronize("");
  cp_->checked_barrier(1, std::chrono::milliseconds(1));
  cp_->abort();
  EXPECT_EQ(sent(), 0);
  EXPECT_THAT(target_->calls, ElementsAre("set_deadline", "synchronize", "checked_barrier", "abort"));
}

TEST_F(CountSent, OfAllGroupsThatThereAre) {
  const CpGroups groups = count_sent({.cp = target_, .inner = target_, .outer = nullptr}, sent_);
  EXPECT_EQ(groups.outer, nullptr);
  at::Tensor inout = of_bytes(1);
  static_cast<void>(groups.cp->all_reduce(inout, ReduceOp::max, ""));
  static_cast<void>(groups.inner->all_reduce(inout, ReduceOp::max, ""));
  EXPECT_EQ(sent(), 2 * 3);
}

}  // namespace
}  // namespace cp_pool
