// What a rank's computing thread does with commands that belong to another case, such as those of a case that was
// aborted.
#include "worker/rank_compute.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "worker/control_plane.h"
#include "worker/rank_outcome.h"
#include "worker/testing/listening_environment.h"

namespace cp_pool {
namespace {

class CountingRunner final : public CaseRunner {
 public:
  void reset(const at::Device& /*device*/) override {}
  std::string skip_reason(const Case& /*c*/, const at::Device& /*device*/) override { return ""; }
  std::string backend(const Case& /*c*/, const at::Device& /*device*/) override { return "counting"; }
  RankReport run(const Case& /*c*/, const CpGroups& /*groups*/, const RunOptions& /*options*/) override {
    ++runs;
    if (declines) throw Declined("not this case", "step 1", {.summary = "ValueError: not this case", .text = "why"});
    return {};
  }
  bool declines = false;
  int runs = 0;  // used by the computing thread; to be read when the case has ended
};

// The only rank of a pool, whose rank 0 is the test.
class ComputingRank : public testing::Test {
 protected:
  ComputingRank() {
    server_.on_rank0([this](const Bytes& bytes) {
      const RankMessage message = decode<RankMessage>(bytes);
      const auto* const done = std::get_if<CaseDone>(&message);
      if (done == nullptr) return;
      const std::lock_guard lock(mutex_);
      done_ = *done;
      changed_.notify_all();
    });
    compute_.connect(0, std::chrono::seconds(60));
    thread_ = std::thread([this] { compute_.serve(); });
  }
  ~ComputingRank() override {
    server_.to_compute(ExitCommand{});
    thread_.join();
    server_.on_rank0(nullptr);
  }

  void send(const ComputeCommand& command) { server_.to_compute(command); }
  void start(std::int64_t seq) {
    RunCommand run;
    run.seq = seq;
    run.case_json = {{"model", "small"}, {"cp_size", 1},  {"batch", 1},     {"seqlen_q", 8},
                     {"seqlen_kv", 8},   {"heads", 1},    {"kv_heads", 1},  {"head_dim_qk", 8},
                     {"head_dim_v", 8},  {"comm", "p2p"}, {"dtype", "fp32"}};
    send(run);
  }
  // Runs a case that begins at once and leaves as the command says.
  RankOutcome outcome_with(const LeaveCommand& leave) {
    start(leave.seq);
    send(BeginCommand{leave.seq, true});
    send(leave);
    return outcome_of(leave.seq);
  }
  RankOutcome outcome_of(std::int64_t seq) {
    std::unique_lock lock(mutex_);
    const bool came = changed_.wait_for(lock, std::chrono::seconds(60), [&] { return done_ && done_->seq == seq; });
    EXPECT_TRUE(came) << "the case has not ended";
    return came ? done_->outcome : RankOutcome{};
  }

  CountingRunner runner;

 private:
  protocol::RankEnvironment environment_ = test::listening_environment(1);
  MessageServer server_{environment_};
  MessageClient<ComputeCommand> messages_{environment_};
  EnvironmentBaseline baseline_;
  FaultInjector faults_{{}, 0};
  GroupSlot groups_;
  PlanPrefetcher prefetcher_{0};
  OwnGpu gpu_;
  RankCompute compute_{{environment_, baseline_, at::kCPU, runner, faults_, groups_, prefetcher_, gpu_},
                       messages_,
                       connect_store(environment_)};
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<CaseDone> done_;
};

TEST_F(ComputingRank, RunsACase) {
  const RankOutcome outcome = outcome_with(LeaveCommand{1, true, ""});
  EXPECT_FALSE(outcome.failure) << outcome.failure->text;
  EXPECT_EQ(outcome.verdict, CaseOutcome::pass);
  EXPECT_EQ(runner.runs, 1);
}

TEST_F(ComputingRank, DoesNotBeginACaseWhenAnEarlierOneMayBegin) {
  start(2);
  send(BeginCommand{1, /*go=*/true});
  send(BeginCommand{2, /*go=*/false});
  const RankOutcome outcome = outcome_of(2);
  ASSERT_TRUE(outcome.failure);
  EXPECT_EQ(outcome.failure->kind, FailureKind::aborted);
  EXPECT_EQ(runner.runs, 0);
}

TEST_F(ComputingRank, DoesNotEndACaseWhenAnEarlierOneIsEnded) {
  start(2);
  send(BeginCommand{1, /*go=*/false});
  send(BeginCommand{2, true});
  send(LeaveCommand{1, false, ""});
  send(LeaveCommand{1, /*go=*/true, "rank 1 has begun more operations"});
  send(LeaveCommand{2, true, ""});
  const RankOutcome outcome = outcome_of(2);
  EXPECT_FALSE(outcome.failure) << outcome.failure->text;
  EXPECT_EQ(outcome.verdict, CaseOutcome::pass);
  EXPECT_EQ(runner.runs, 1);
}

TEST_F(ComputingRank, SkipsACaseThatEveryRankDeclines) {
  runner.declines = true;
  const RankOutcome outcome = outcome_with(LeaveCommand{1, true, ""});
  EXPECT_FALSE(outcome.failure) << outcome.failure->text;
  EXPECT_EQ(outcome.verdict, CaseOutcome::skip);
  EXPECT_EQ(outcome.reason, "not this case");
}

TEST_F(ComputingRank, FailsIfItDeclinesACaseAlone) {
  runner.declines = true;
  const RankOutcome outcome = outcome_with(LeaveCommand{1, /*go=*/false, ""});
  ASSERT_TRUE(outcome.failure);
  EXPECT_EQ(outcome.failure->kind, FailureKind::exception);
  EXPECT_EQ(outcome.failure->summary, "ValueError: not this case");
  EXPECT_EQ(outcome.failure->text, "why");
  EXPECT_FALSE(outcome.verdict);
  EXPECT_TRUE(outcome.declined);
}

TEST_F(ComputingRank, SaysThatAnotherRankHasNotDeclinedTheCase) {
  runner.declines = true;
  const RankOutcome outcome = outcome_with(LeaveCommand{1, true, "rank 1 ran the case"});
  ASSERT_TRUE(outcome.failure);
  EXPECT_EQ(outcome.failure->summary,
            "ValueError: not this case (rank 0: barrier after the case: rank 1 ran the case)");
}

}  // namespace
}  // namespace cp_pool
