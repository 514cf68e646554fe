// Requests for the phases in which the ranks of a running case stand (RunConfig::status_requests).
#include <cstdint>

#include <gmock/gmock.h>

#include "tests/driver/harness.h"

namespace cp_pool::driver_test {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::SizeIs;

class Standings : public ::testing::Test {
 protected:
  // Runs the cases, and requests the standings again and again while a case runs.
  void run_asked(const std::vector<std::string>& models, RunConfig config) {
    config.tick = milliseconds(10);
    config.slow_after = milliseconds(0);
    config.status_requests = [this] { return requests_ += started_ ? 1 : 0; };
    recorder_.on_each = [this](const Event& event) {
      if (std::holds_alternative<CaseStarted>(event)) started_ = true;
      if (std::holds_alternative<CaseFinished>(event)) started_ = false;
      const auto* progress = std::get_if<CaseProgress>(&event);
      if (progress != nullptr && on_answer_) on_answer_(*progress);
    };
    run(fake_cases(models), config, recorder_);
  }

  Recorder recorder_;
  std::function<void(const CaseProgress&)> on_answer_;

 private:
  bool started_ = false;
  std::uint64_t requests_ = 0;
};

TEST_F(Standings, AreToldOfEachRankAndTheCaseGoesOn) {
  run_asked({"pinged", "pass"}, fake_config());
  EXPECT_THAT(recorder_.outcomes(), ElementsAre("pass", "pass"));
  EXPECT_THAT(recorder_.all<PoolSpawned>(), SizeIs(1)) << "and the pool is kept";
  const auto told = recorder_.all<CaseProgress>();
  ASSERT_THAT(told, SizeIs(1)) << "requests that come until a ping is answered have its answer";
  EXPECT_EQ(told[0].id, "fake/pinged");
  EXPECT_GT(told[0].running_ms, 0);
  ASSERT_THAT(told[0].ranks, SizeIs(2));
  EXPECT_EQ(told[0].ranks[0].phase, "barrier");
  EXPECT_EQ(told[0].ranks[0].ms, 3200);
  EXPECT_EQ(told[0].ranks[0].operation, "barrier on group cp: after the case");
  EXPECT_EQ(told[0].ranks[0].operation_ms, 3100);
  EXPECT_EQ(told[0].ranks[1].phase, "forward");
  EXPECT_EQ(told[0].ranks[1].operation, "");
}

}  // namespace
}  // namespace cp_pool::driver_test
