// The driver schedules items of any kind: these are no attention cases.
#include <memory>
#include <utility>

#include <gmock/gmock.h>

#include "driver/core/figures.h"
#include "driver/core/payload.h"
#include "tests/driver/harness.h"

namespace cp_pool::driver_test {
namespace {

using namespace ::testing;

// Tells the fake worker what to do, on a number of ranks. It answers every other question with nothing.
class Order final : public Payload::Kind {
 public:
  Order(std::string what, int ranks) : what_(std::move(what)), ranks_(ranks) {}

  [[nodiscard]] nlohmann::ordered_json json() const override { return {{"order", what_}}; }
  [[nodiscard]] const char* key() const override { return "case"; }
  [[nodiscard]] int ranks() const override { return ranks_; }
  [[nodiscard]] std::string group() const override { return ""; }
  [[nodiscard]] std::string default_id() const override { return what_; }
  [[nodiscard]] std::string unknown_to_worker(const nlohmann::json& /*capabilities*/) const override {
    return what_ == "unknown" ? "the worker takes no such orders" : "";
  }
  void put_into(protocol::RunRequest& request, const nlohmann::json& /*capabilities*/) const override {
    request.case_json = {{"model", what_}};
  }
  bool put_into(protocol::PrepareRequest& /*request*/, const nlohmann::json& /*capabilities*/) const override {
    return false;
  }
  [[nodiscard]] bool has_figures() const override { return false; }
  [[nodiscard]] PerfFigures figures(const protocol::PerfResult& measured) const override { return {measured}; }
  [[nodiscard]] std::string suite() const override { return ""; }
  [[nodiscard]] std::string model() const override { return ""; }
  [[nodiscard]] std::string column() const override { return ""; }
  [[nodiscard]] const Case* attention() const override { return nullptr; }

 private:
  std::string what_;
  int ranks_;
};

Item order(const std::string& what, int ranks = 2) {
  Item out;
  out.id = "order/" + what;
  out.payload = Payload(std::make_shared<Order>(what, ranks));
  return out;
}

TEST(Items, OfAnotherKindRunBesideAttentionCases) {
  const Recorder recorder = run({order("pass"), fake_case("pass"), order("fail"), order("sigsegv@1"), order("skip", 1),
                                 order("unknown"), fake_case("pass", 1)});
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "pass", "fail", "crash", "skip", "skip", "pass"));
  EXPECT_TRUE(recorder.end().ledger_exact);
  EXPECT_EQ(recorder.finished(0).payload->json(), nlohmann::ordered_json({{"order", "pass"}}));
  EXPECT_FALSE(is_unverified_by_figures(recorder.finished(0)));
  EXPECT_TRUE(is_unverified_by_figures(recorder.finished(1)));
  EXPECT_EQ(recorder.finished(4).pool->key, "cpu/1");
  EXPECT_EQ(recorder.finished(5).reason, "the worker takes no such orders");
  EXPECT_THAT(processes_left(), IsEmpty());
}

TEST(Items, OfAnotherKindAreRetriedReplayedAndKept) {
  const test::TemporaryFolder folder;
  RunConfig config = fake_config();
  config.retries.most = 1;
  config.retries.on.insert(CaseOutcome::fail);
  config.triage = true;
  config.capsules = folder.path();
  const Recorder recorder = run({order("fail")}, config);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("fail"));
  EXPECT_EQ(recorder.all<CaseTried>().size(), 1);
  ASSERT_THAT(recorder.all<CaseReplayed>(), ::testing::Not(IsEmpty()));
  EXPECT_EQ(recorder.all<CaseReplayed>().front().outcome, CaseOutcome::fail);
  EXPECT_EQ(recorder.all<CaseVerdict>().size(), 1);
  const std::filesystem::path capsule = std::filesystem::directory_iterator(folder.path())->path();
  EXPECT_THAT(test::read_file(capsule / "capsule.json"), HasSubstr(R"("order": "fail")"));
}

}  // namespace
}  // namespace cp_pool::driver_test
