#include <gmock/gmock.h>

#include "driver/report/summary.h"
#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(SearchSummary, SaysWhatBecameOfCasesThatEarlierSearchesHadFound) {
  SearchFinished end;
  end.kept = 3;
  EXPECT_THAT(search_summary(test::report_of({end})),
              HasSubstr("\n3 cases found by earlier searches: none passes now\n"));
  end.kept_passing = {"search/kept-1/p2p/cp2/bshd/fp32"};
  EXPECT_THAT(search_summary(test::report_of({end})),
              HasSubstr("\n3 cases found by earlier searches: 1 passes now (fixed, or no longer the same problem) and "
                        "is kept: search/kept-1/p2p/cp2/bshd/fp32\n"));
}

TEST(SearchSummary, SaysThatNothingWasFound) {
  EXPECT_THAT(search_summary(test::report_of({SearchFinished{}})), EndsWith("\nfound nothing\n"));
}

}  // namespace
}  // namespace cp_pool
