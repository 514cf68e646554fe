#include <array>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>

#include "worker/protocol/line_framer.h"
#include "worker/rank_zero.h"

namespace cp_pool {
namespace {

// Returns the lines that arrive at the other end of a pipe.
std::vector<protocol::Line> lines_of(const protocol::Event& event) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  std::jthread writer([&] {
    write_response(ends[1], event);
    close(ends[1]);
  });
  protocol::LineFramer framer(protocol::LineFramer::Stream::responses);
  std::vector<protocol::Line> lines;
  std::array<char, 4096> buffer;
  for (ssize_t got = 0; (got = read(ends[0], buffer.data(), buffer.size())) > 0;) {
    for (auto& line : framer.feed({buffer.data(), static_cast<std::size_t>(got)})) lines.push_back(std::move(line));
  }
  close(ends[0]);
  return lines;
}

TEST(ResponseWriter, WritesALineThatIsLongerThanAPipeHolds) {
  protocol::ResultEvent event;
  event.reason = std::string(1000000, 'x');
  const auto lines = lines_of(event);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(std::get<protocol::ResultEvent>(protocol::parse_event(lines[0].text)).reason, event.reason);
}

TEST(ResponseWriter, LeavesOutTheChecksOfAResultThatIsTooLong) {
  protocol::ResultEvent event;
  Check check;
  check.message = std::string(protocol::kMaxLineBytes / 2, 'x');
  event.checks = {check, check};
  const auto lines = lines_of(event);
  ASSERT_EQ(lines.size(), 1U);
  ASSERT_EQ(lines[0].kind, protocol::Line::Kind::message);
  const auto got = std::get<protocol::ResultEvent>(protocol::parse_event(lines[0].text));
  EXPECT_TRUE(got.checks.empty());
  EXPECT_THAT(got.reason, testing::HasSubstr("2 checks left out"));
}

}  // namespace
}  // namespace cp_pool
