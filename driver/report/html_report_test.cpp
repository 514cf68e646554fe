#include "driver/report/reports.h"
#include "driver/report/testing/parsed_page.h"
#include "driver/testing/attention.h"
#include "driver/testing/example_events.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool::test {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

class Page : public ParsedPage {
 public:
  explicit Page(const std::vector<Event>& events) : ParsedPage(html_report(report_of(events))) {
    expect_readable(*this);
  }
};

TEST(Html, FailuresStandInTheOrderOfTheirListAndTheFirstOfEachKindIsOpen) {
  const auto error = [](std::size_t index, const std::string& id, const std::string& reason) {
    return finished(index, id, CaseOutcome::error, reason);
  };
  const Page page({run_started(5), error(4, "e", "rank 0: boom 7"), error(1, "b", "no memory"),
                   error(3, "d", "no memory"), error(0, "a", "rank 1: boom 8"), error(2, "c", "rank 1: boom"),
                   run_finished({0, 0, 0, 5, 0, 0, 0, 0, 0})});
  EXPECT_THAT(page.one("//pre[contains(., '5 failed:')]"),
              StartsWith("5 failed:\n  error    3 cases, the first: rank 1: boom 8\n           a\n           c\n"
                         "           e\n  error    2 cases: no memory\n           b\n           d\n"));
  EXPECT_THAT(page.all("//details/summary/a/@href"),
              ElementsAre("#case-0", "#case-2", "#case-4", "#case-1", "#case-3"));
  EXPECT_THAT(page.all("//details[@open]/summary/a/@href"), ElementsAre("#case-0", "#case-1"));
}

TEST(Html, OfManyFailuresTheFirstHavePictures) {
  std::vector<Event> events{run_started(60)};
  for (std::size_t i = 0; i < 60; ++i) {
    CaseFinished event = failed_case(i, "id");
    event.diagnosis = example_diagnosis();
    events.emplace_back(event);
  }
  events.emplace_back(run_finished({0, 60, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(Page(events).all("//details//svg[contains(@class, 'mask')]").size(), 50U);
}

TEST(Html, ForeignTextIsTextNotMarkup) {
  CaseFinished event = finished(0, "<b>id</b>", CaseOutcome::crash,
                                protocol::clean_text("a\x01 \x1b[31mred\x1b[0m \xff </pre><script>&"));
  attention(event.payload).model = "<m>";
  event.rerun = "cp-pool submit '<&>'";
  const Page page({run_started(1), event, run_finished({0, 0, 0, 0, 0, 1, 0, 0, 0})});
  EXPECT_EQ(page.one("//tr[@id='case-0']/td[4]"), "<b>id</b>");
  EXPECT_EQ(page.one("//details/p[1]"), "a\\x01 \\x1b[31mred\\x1b[0m \xef\xbf\xbd </pre><script>&");
  EXPECT_EQ(page.one("//details/p/code"), "cp-pool submit '<&>'");
  EXPECT_THAT(page.all("//script"), ElementsAre());
}

TEST(Html, TheStyleIsWhatABrowserReads) {
  const Page page({run_started(0), run_finished({})});
  EXPECT_EQ(page.one("//style").find_first_of("<&>"), std::string::npos) << "escaped in the file, and not in a browser";
}

}  // namespace
}  // namespace cp_pool::test
