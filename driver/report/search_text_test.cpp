#include "driver/report/search_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

SearchFound some_find() {
  SearchFound found;
  found.id = "search/7-12/a2a/cp6/thd/bf16/pad";
  found.how = "fail of dq";
  found.smallest = "search/7-12/smallest-58/a2a/cp2/bshd/fp32";
  found.c = test::example_case("adhoc", "case");
  found.tries = 56;
  found.ms = 2100;
  found.asked = found.failed = 1;
  found.command = "printf .. | cp-pool submit -";
  return found;
}

constexpr const char* kJson =
    R"({"seqlen_q":128,"seqlen_kv":128,"heads":4,"kv_heads":2,"head_dim_qk":64,"head_dim_v":64})";

TEST(FoundText, HasTheSmallestCaseAndTheCommandThatRunsIt) {
  EXPECT_EQ(found_text(some_find()),
            std::string("found: fail of dq, first in search/7-12/a2a/cp6/thd/bf16/pad; made smaller "
                        "by 56 cases (2.10 s)\n    ") +
                kJson + "\n    alone: printf .. | cp-pool submit -\n");
}

TEST(FoundText, SaysThatAFailureIsFlakyOrKnownOrNotTheSmallest) {
  SearchFound found = some_find();
  found.asked = 10;
  found.failed = 3;
  found.tries = 0;
  found.note = "the run was stopped";
  EXPECT_THAT(found_text(found), AllOf(HasSubstr("\n    flaky: the case failed in the same way in 3 of 10 runs\n"),
                                       HasSubstr("\n    the run was stopped\n"), Not(HasSubstr("made smaller"))));
  found.kept = true;
  EXPECT_THAT(found_text(found), StartsWith("found: fail of dq, first in search/7-12/a2a/cp6/thd/bf16/pad, which an "
                                            "earlier search had found\n"));
}

SearchFinished some_end() {
  SearchFinished end;
  end.why = "the time was over (--time)";
  end.judged = 812;
  end.skipped = 22;
  end.ms = 41'200;
  end.tried = {{"chunked attention", 80}, {"comm=a2a", 300}, {"comm=p2p", 512}, {"cp_size=1", 40}, {"cp_size=2", 772}};
  end.edges = {{"chunk = piece", 61}, {"an odd ring", 0}};
  return end;
}

TEST(SearchSummary, SaysHowMuchWasTriedOverWhat) {
  EXPECT_EQ(search_summary(some_end(), {}),
            "searched 812 cases judged, 22 skipped, in 41.2 s: the time was over (--time)\n"
            "  comm: a2a 300, p2p 512\n"
            "  cp_size: 1 40, 2 772\n"
            "  with chunked attention 80\n"
            "  edges: chunk = piece 61, an odd ring 0\n"
            "found nothing\n");
}

TEST(SearchSummary, SaysWhatWasFixedAndWhatTheWorkerSkips) {
  SearchFinished end = some_end();
  end.fixed = {"layout=thd", "training=true"};
  end.never_judged = {{"bias=1hss", 12, "no bias here\nat line 3"}, {"softmax=learnable", 1, ""}};
  EXPECT_THAT(search_summary(end, {}), AllOf(HasSubstr("\n  all with layout=thd, training=true\n"),
                                             HasSubstr("\nnever judged, because the worker skips it:\n"
                                                       "  bias=1hss (12 cases: no bias here)\n"
                                                       "  softmax=learnable (1 case)\n")));
  end.never_judged.assign(25, {"bias=1hss", 12, ""});
  EXPECT_THAT(search_summary(end, {}), HasSubstr("\n  and 5 more\n"));
}

TEST(SearchSummary, SaysWhatBecameOfCasesThatEarlierSearchesHadFound) {
  SearchFinished end = some_end();
  end.kept = 3;
  EXPECT_THAT(search_summary(end, {}), HasSubstr("\n3 cases found by earlier searches: none passes now\n"));
  end.kept_passing = {"search/kept-1/p2p/cp2/bshd/fp32"};
  EXPECT_THAT(search_summary(end, {}),
              HasSubstr("\n3 cases found by earlier searches: 1 passes now (fixed, or no longer the same problem) and "
                        "is kept: search/kept-1/p2p/cp2/bshd/fp32\n"));
  end.kept_passing.emplace_back("search/kept-3/p2p/cp2/bshd/fp32");
  EXPECT_THAT(search_summary(end, {}),
              HasSubstr("\n3 cases found by earlier searches: 2 pass now (fixed, or no longer the same problem) and "
                        "are kept: search/kept-1/p2p/cp2/bshd/fp32, search/kept-3/p2p/cp2/bshd/fp32\n"));
}

TEST(SearchSummary, EndsWithWhatWasFound) {
  SearchFinished end = some_end();
  end.repeated = 4;
  end.file = "/state/found.jsonl";
  SearchFound flaky = some_find();
  flaky.how = "timeout";
  flaky.asked = 10;
  flaky.failed = 2;
  EXPECT_THAT(
      search_summary(end, {some_find(), flaky}),
      EndsWith(
          std::string("found 2 failures, and 4 more like it:\n  fail of dq: ") + kJson +
          "\n    alone: printf .. | cp-pool submit -\n  timeout (flaky): " + kJson +
          "\n    alone: printf .. | cp-pool submit -\nkept in /state/found.jsonl, which a later search runs first\n"));
}

TEST(SearchSummary, BreaksLongLines) {
  SearchFinished end = some_end();
  end.tried.clear();
  for (int i = 100; i < 140; ++i) end.tried.push_back({"cp_size=" + std::to_string(i), 1000});
  const std::string text = search_summary(end, {});
  EXPECT_THAT(text, HasSubstr("\n  cp_size: 100 1000, 101 1000,"));
  std::size_t begin = 0;
  for (std::size_t at = 0; (at = text.find('\n', begin)) != std::string::npos; begin = at + 1)
    EXPECT_LE(at - begin, 110U);
}

}  // namespace
}  // namespace cp_pool
