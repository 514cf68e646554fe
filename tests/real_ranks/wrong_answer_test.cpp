// A wrong answer of one real rank, for each rank, each result tensor and each communication type. The outcome must be
// `fail`, the checks must blame exactly this rank and this tensor, and events, JUnit report, summary and exit code must
// say so.
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <pugixml.hpp>

#include "tests/driver/harness.h"
#include "tests/real_ranks/driver_run.h"

namespace cp_pool::test {
namespace {

using driver_test::TemporaryPath;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using TensorOfRank = std::pair<std::string, int>;

constexpr const char* kRepeat = "repeat";  // the check of the repeated step
constexpr int kMostRanks = 4;

const std::vector<std::string> kTensors{"out", "lse",   "max_logit", "dq",    "dk",
                                        "dv",  "dbias", "dsink",     kRepeat, "repeat_dq"};
const std::set<std::string> kProbed{"mask out", "mask lse", "mask dv"};

std::string model_of(const std::string& tensor, int rank) {
  return fmt::format("{}-{}", tensor, rank);
}

// The check that fails if the fault `wrong=TENSOR` is injected.
std::string check_of(const std::string& tensor) {
  return tensor.starts_with(kRepeat) ? kRepeat : tensor;
}

// A matrix with the model "clean" and a model for each pair of tensor and rank. Every case has every result. Each model
// runs with every communication type that has the rank, and each type has its own layout and dtype.
std::string wrong_answer_matrix() {
  std::string models = R"("clean":{})";
  for (const std::string& tensor : kTensors) {
    for (int rank = 0; rank < kMostRanks; ++rank) {
      const char* const values = rank < 2 ? "" : R"("comm":"a2a+p2p")";
      models += fmt::format(R"(,"{}":{{{}}})", model_of(tensor, rank), values);
    }
  }
  return R"({"suite":"wrong","sizes":{"small":{}},
    "defaults":{"cp_size":2,"batch":2,"seqlen_q":32,"seqlen_kv":32,"heads":4,"kv_heads":2,"head_dim_qk":8,
                "head_dim_v":8,"causal":true,"bias":"1hss","softmax":"learnable","max_logit":true},
    "axes":{"comm":["p2p","all_gather","a2a","a2a+p2p"]},
    "rules":[{"when":"comm=p2p","set":{"layout":"thd","pad_between_seqs":true,"dtype":"fp32"}},
             {"when":"comm=all_gather","set":{"layout":"sbhd","dtype":"bf16"}},
             {"when":"comm=a2a","set":{"layout":"bshd","dtype":"fp16"}},
             {"when":"comm=a2a+p2p","set":{"layout":"thd","dtype":"bf16","cp_size":4}}],
    "models":{)" +
         models + "}}";
}

std::string wrong_answer_worker() {
  std::string command = "'" CP_POOL_WORKER_BINARY "'";
  for (const std::string& tensor : kTensors) {
    for (int rank = 0; rank < kMostRanks; ++rank) {
      command += fmt::format(" --inject wrong={}@{}:inside:wrong/{}/*", tensor, rank, model_of(tensor, rank));
    }
  }
  return command;
}

// The tensor and the rank that the fault of the case breaks ("dq-1"); an empty name for "clean".
TensorOfRank broken_in(const json& finished) {
  const std::string model = finished.at("case").at("model");
  if (model == "clean") return {};
  const std::size_t at = model.rfind('-');
  return {model.substr(0, at), std::stoi(model.substr(at + 1))};
}

int ranks_of(const json& finished) {
  return finished.at("case").at("cp_size").get<int>();
}

// Expects every rank once, and only the broken one as not ok.
void expect_ranks(const json& finished, const TensorOfRank& broken) {
  std::multiset<int> ranks;
  for (const json& rank : finished.at("ranks")) {
    ranks.insert(rank.at("rank").get<int>());
    const bool blamed = !broken.first.empty() && rank.at("rank") == broken.second;
    EXPECT_EQ(rank.at("ok").get<bool>(), !blamed) << rank;
    EXPECT_EQ(rank.at("error").get<std::string>().empty(), !blamed) << rank;
    EXPECT_FALSE(rank.at("output_hash").get<std::string>().empty());
  }
  EXPECT_EQ(ranks.size(), static_cast<std::size_t>(ranks_of(finished)));
  for (int rank = 0; rank < ranks_of(finished); ++rank) EXPECT_EQ(ranks.count(rank), 1U) << "rank " << rank;
}

// Expects a check of every result of every rank once, and only the broken result beyond its bound.
void expect_checks(const json& finished, TensorOfRank broken) {
  broken.first = check_of(broken.first);
  std::multiset<TensorOfRank> seen;
  for (const json& check : finished.at("checks")) {
    const TensorOfRank where{check.at("tensor"), check.at("rank")};
    seen.insert(where);
    EXPECT_EQ(check.at("ok").get<bool>(), where != broken) << check;
    EXPECT_EQ(check.at("message").get<std::string>().empty(), where != broken) << check;
    if (where.first == kRepeat) continue;  // compared bit by bit, so it has no error and bound
    const auto error = check.at("error").get<double>();
    const auto bound = check.at("bound").get<double>();
    EXPECT_EQ(error > bound, where == broken) << check;
    EXPECT_TRUE(where != broken || error > 10 * bound) << "hardly more than rounding: " << check;
  }
  std::multiset<TensorOfRank> wanted;
  for (int rank = 0; rank < ranks_of(finished); ++rank) {
    for (const std::string& tensor : kTensors) {
      if (check_of(tensor) != kRepeat) wanted.emplace(tensor, rank);
    }
    for (const std::string& tensor : kProbed) wanted.emplace(tensor, rank);
  }
  if (broken.first == kRepeat) wanted.insert(broken);
  EXPECT_EQ(seen, wanted);
}

void expect_verdict(const json& finished) {
  SCOPED_TRACE(finished.at("id").get<std::string>());
  const TensorOfRank broken = broken_in(finished);
  const bool clean = broken.first.empty();
  EXPECT_EQ(finished.at("outcome"), clean ? "pass" : "fail") << finished.at("reason");
  EXPECT_EQ(finished.at("pool").at("generation"), 1) << "a wrong answer does not cost the pool";
  EXPECT_EQ(finished.at("attempts"), 1);
  expect_ranks(finished, broken);
  expect_checks(finished, broken);
  if (clean) return;
  EXPECT_THAT(finished.at("reason").get<std::string>(),
              StartsWith(fmt::format("rank {}: {}: ", broken.second, check_of(broken.first))));
  EXPECT_EQ(finished.at("ranks").at(0).at("rank"), broken.second) << "the rank to blame comes first";
  for (const json& tail : finished.at("stderr")) {
    if (tail.at("rank") != broken.second) continue;
    EXPECT_THAT(tail.at("text").get<std::string>(), HasSubstr("injected fault wrong=" + broken.first));
  }
}

void expect_junit(const std::filesystem::path& file, const std::vector<json>& finished) {
  pugi::xml_document report;
  ASSERT_TRUE(report.load_file(file.c_str())) << file;
  std::map<std::string, pugi::xml_node> tests;
  for (const pugi::xpath_node found : report.select_nodes("//testcase")) {
    tests[found.node().attribute("name").as_string()] = found.node();
  }
  EXPECT_EQ(tests.size(), finished.size());
  EXPECT_EQ(report.select_nodes("//testcase/error | //testcase/skipped").size(), 0U);
  for (const json& event : finished) {
    SCOPED_TRACE(event.at("id").get<std::string>());
    const pugi::xml_node failure = tests[event.at("id").get<std::string>()].child("failure");
    const TensorOfRank broken = broken_in(event);
    ASSERT_EQ(static_cast<bool>(failure), !broken.first.empty());
    if (!failure) continue;
    EXPECT_STREQ(failure.attribute("type").as_string(), "fail");
    EXPECT_THAT(failure.attribute("message").as_string(), HasSubstr(event.at("reason").get<std::string>()));
    EXPECT_THAT(failure.text().as_string(), HasSubstr(check_of(broken.first)));
  }
}

TEST(WrongAnswer, OfAnyRankTensorAndCommunicationTypeIsAFailToTheExitCode) {
  const TemporaryPath matrix("wrong.json");
  const TemporaryPath junit("wrong.xml");
  std::ofstream(matrix.get()) << wrong_answer_matrix();
  DriverRun run({"run", "--matrix", matrix.get(), "--worker", wrong_answer_worker(), "--junit", junit.get(), "--device",
                 "cpu", "--slots", "2", "--no-progress", "--no-diagnosis"});
  EXPECT_EQ(run.wait(), 100);

  const std::vector<json> events = run.events();
  const std::vector<json> finished = of_type(events, "case_finished");
  const std::size_t clean = 4;
  // Ranks 0 and 1 under each of four communication types, ranks 2 and 3 under the one of four ranks.
  const std::size_t broken = kTensors.size() * (2 * 4 + 2);
  ASSERT_EQ(finished.size(), clean + broken) << run.output();
  for (const json& event : finished) expect_verdict(event);
  expect_junit(junit.get(), finished);

  const json end = of_type(events, "run_finished").at(0);
  EXPECT_EQ(end.at("exit_code"), 100);
  EXPECT_TRUE(end.at("ledger_exact").get<bool>());
  EXPECT_EQ(end.at("counts").at("fail"), broken);
  EXPECT_EQ(end.at("counts").at("pass"), clean);
  EXPECT_THAT(run.output(), HasSubstr(fmt::format("{} expanded = {} pass + {} fail", clean + broken, clean, broken)));
}

}  // namespace
}  // namespace cp_pool::test
