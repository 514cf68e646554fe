// Every report shows the cause of a failure that the worker has found.
#include <gmock/gmock.h>

#include "cases/testing/temporary_folder.h"
#include "driver/cli/testing/started_program.h"

namespace cp_pool {
namespace {

using namespace ::testing;

class DiagnosisReports : public ::testing::Test {
 protected:
  test::Finished submit(std::vector<std::string> words) {
    test::write_file(
        folder_ / "case.json",
        R"({"suite":"demo","model":"diagnosed","cp_size":1,"comm":"p2p","layout":"bshd","dtype":"fp32",)"
        R"("batch":1,"seqlen_q":16,"seqlen_kv":16,"heads":1,"kv_heads":1,"head_dim_qk":8,"head_dim_v":8})");
    words.insert(words.begin(), {CP_POOL_PROGRAM, "submit", path("case.json"), "--worker",
                                 "python3 '" CP_POOL_SCRIPTED_WORKER "'", "--grace", "100ms"});
    return test::Program{std::move(words)}.wait();
  }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }
  [[nodiscard]] std::string text_of(const std::string& name) const { return test::read_file(folder_ / name); }

 private:
  test::TemporaryFolder folder_;
};

TEST_F(DiagnosisReports, AllNameTheCauseFirstAndTheEvidenceAfterIt) {
  const char* const text =
      "cause (likely): the mask is <missing>\\x1b[31m (explains dq within bounds); or: whole_keys\n"
      "      every query saw every key\n";
  const test::Finished done = submit({"--junit", path("j.xml"), "--html", path("h.html"), "--events", path("e.jsonl")});
  EXPECT_EQ(done.exit_code, 100) << done.err;
  EXPECT_THAT(done.out, HasSubstr(text));
  EXPECT_THAT(text_of("e.jsonl"),
              HasSubstr(R"("diagnosis":{"certainty":"likely","id":"no_mask","cause":"the mask is)"));

  const test::Finished report = test::Program{
      {CP_POOL_PROGRAM, "report", path("e.jsonl"), "--junit", path("j2.xml"), "--html",
       path("h2.html")}}.wait();
  EXPECT_EQ(report.exit_code, 100) << report.err;
  for (const char* junit : {"j.xml", "j2.xml"}) {
    EXPECT_THAT(text_of(junit),
                AllOf(HasSubstr("cause (likely): the mask is &lt;missing&gt;\\x1b[31m (explains dq"),
                      HasSubstr("every query saw every key"), HasSubstr("[[PROPERTY|diagnosis=no_mask]]\n"),
                      HasSubstr("[[PROPERTY|diagnosis_certainty=likely]]\n")));
  }
  for (const char* html : {"h.html", "h2.html"}) {
    EXPECT_THAT(text_of(html), AllOf(HasSubstr("the mask is &lt;missing&gt;\\x1b[31m"), HasSubstr("whole_keys"),
                                     HasSubstr("every query saw every key")));
  }
  const auto json = nlohmann::json::parse(submit({"--json"}).out);
  EXPECT_EQ(json["diagnosis"]["id"], "no_mask");
  EXPECT_EQ(json["diagnosis"]["others"], nlohmann::json::array({"whole_keys"}));
}

TEST_F(DiagnosisReports, AreWithoutOneIfNoneIsWanted) {
  const test::Finished done = submit({"--no-diagnosis", "--events", path("e.jsonl")});
  EXPECT_EQ(done.exit_code, 100) << done.err;
  EXPECT_THAT(done.out, AllOf(HasSubstr("dq is wrong"), Not(HasSubstr("cause"))));
  EXPECT_THAT(text_of("e.jsonl"), HasSubstr(R"("diagnosis":null)"));
}

}  // namespace
}  // namespace cp_pool
