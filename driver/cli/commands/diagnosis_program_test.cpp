// Every report shows the cause of a failure that the worker has found.
#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

class DiagnosisReports : public CommandLine {
 protected:
  Finished submit(const Words& more) {
    write_file(path("case.json"), case_of("diagnosed"));
    return call(with({"submit", path("case.json"), "--worker", kWorker, "--grace", "100ms"}, more));
  }
};

TEST_F(DiagnosisReports, AllNameTheCauseFirstAndTheEvidenceAfterIt) {
  const char* const text =
      "cause (likely): the mask is <missing>\\x1b[31m (explains dq within bounds); or: whole_keys\n"
      "      every query saw every key\n";
  EXPECT_THAT(submit({"--junit", path("j.xml"), "--html", path("h.html"), "--events", path("e.jsonl")}),
              exits(100, out(HasSubstr(text))));
  EXPECT_THAT(read_file(path("e.jsonl")),
              HasSubstr(R"("diagnosis":{"certainty":"likely","id":"no_mask","cause":"the mask is)"));

  const Words report = {"report", path("e.jsonl"), "--junit", path("j2.xml"), "--html", path("h2.html")};
  EXPECT_THAT(call(report), exits(100));
  for (const char* junit : {"j.xml", "j2.xml"}) {
    EXPECT_THAT(read_file(path(junit)),
                AllOf(HasSubstr("cause (likely): the mask is &lt;missing&gt;\\x1b[31m (explains dq"),
                      HasSubstr("every query saw every key"), HasSubstr("[[PROPERTY|diagnosis=no_mask]]\n"),
                      HasSubstr("[[PROPERTY|diagnosis_certainty=likely]]\n")));
  }
  for (const char* html : {"h.html", "h2.html"}) {
    EXPECT_THAT(read_file(path(html)), AllOf(HasSubstr("the mask is &lt;missing&gt;\\x1b[31m"), HasSubstr("whole_keys"),
                                             HasSubstr("every query saw every key")));
  }
  const auto json = nlohmann::json::parse(submit({"--json"}).out);
  EXPECT_EQ(json["diagnosis"]["id"], "no_mask");
  EXPECT_EQ(json["diagnosis"]["others"], nlohmann::json::array({"whole_keys"}));
}

TEST_F(DiagnosisReports, AreWithoutOneIfNoneIsWanted) {
  EXPECT_THAT(submit({"--no-diagnosis", "--events", path("e.jsonl")}),
              exits(100, out(HasSubstr("dq is wrong"), Not(HasSubstr("cause")))));
  EXPECT_THAT(read_file(path("e.jsonl")), HasSubstr(R"("diagnosis":null)"));
}

}  // namespace
}  // namespace cp_pool::test
