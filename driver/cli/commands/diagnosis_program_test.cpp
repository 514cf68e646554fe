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
  EXPECT_THAT(read_file(path("j.xml")), HasSubstr("cause (likely): the mask is &lt;missing&gt;\\x1b[31m (explains dq"));
  EXPECT_THAT(read_file(path("h.html")), HasSubstr("the mask is &lt;missing&gt;\\x1b[31m"));
}

TEST_F(DiagnosisReports, AreWithoutOneIfNoneIsWanted) {
  EXPECT_THAT(submit({"--no-diagnosis", "--events", path("e.jsonl")}),
              exits(100, out(HasSubstr("dq is wrong"), Not(HasSubstr("cause")))));
  EXPECT_THAT(read_file(path("e.jsonl")), HasSubstr(R"("diagnosis":null)"));
}

}  // namespace
}  // namespace cp_pool::test
