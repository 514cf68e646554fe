#include "driver/report/pictures/pictures.h"
#include "driver/report/testing/parsed_page.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

ParsedPage exchange_page(std::vector<Message> messages, int ranks, int times = 1) {
  const Exchange exchange{
      .pass = Pass::forward, .what = "k and v travel", .times = times, .messages = std::move(messages)};
  return page_with([&](pugi::xml_node body) { append_exchange(body, exchange, ranks, "16.0 KiB", "x"); });
}

TEST(ExchangeSvg, HasAnArrowForEachMessageOfARing) {
  const ParsedPage page = exchange_page(ring_messages(6, 1, 1), 6, 5);
  expect_readable(page);
  EXPECT_EQ(page.one("//figcaption"), "k and v travel. 16.0 KiB an arrow, 5 times.");
  EXPECT_THAT(page.all("//path[@marker-end]/title"), SizeIs(6));
  EXPECT_THAT(page.all("//path[@marker-end]/title"), Contains("rank 5 to rank 0: 16.0 KiB"));
  EXPECT_THAT(page.all("//svg/text"), ElementsAre("rank 0", "rank 1", "rank 2", "rank 3", "rank 4", "rank 5"));
}

TEST(ExchangeSvg, TwoMessagesBetweenTwoRanksAreALineWithTwoHeads) {
  const ParsedPage page = exchange_page(messages_to_all(2, 1), 2);
  EXPECT_EQ(page.one("//path[@marker-end and @marker-start]/title"),
            "rank 0 to rank 1: 16.0 KiB, and as much from rank 1 to rank 0");
  EXPECT_THAT(page.all("//text"), Contains("16.0 KiB each way")) << "few arrows say how much it is";
}

TEST(ExchangeSvg, OfVeryManyMessagesThoseOfRank0AreDrawn) {
  const ParsedPage few = exchange_page(messages_to_all(9, 1), 9);
  EXPECT_THAT(few.all("//path[@marker-end]"), SizeIs(36));
  EXPECT_THAT(few.text, Not(HasSubstr("drawn are")));
  const ParsedPage many = exchange_page(messages_to_all(64, 1), 64);
  expect_readable(many);
  EXPECT_THAT(many.all("//path[@marker-end]"), SizeIs(63));
  EXPECT_THAT(many.one("//figcaption"), HasSubstr("only those of rank 0 are drawn"));
}

}  // namespace
}  // namespace cp_pool::test
