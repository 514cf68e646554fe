#include "driver/os/helper_process.h"

#include <array>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <stdexcept>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "driver/os/process_tree.h"
#include "driver/ranks/driver_socket.h"

namespace cp_pool {
namespace {

std::string read_all(const UniqueFd& fd) {
  std::string out;
  std::array<char, 256> bytes{};
  for (ssize_t n = 0; (n = ::read(fd.get(), bytes.data(), bytes.size())) > 0;) {
    out.append(bytes.data(), static_cast<std::size_t>(n));
  }
  return out;
}

TEST(ForkedHelper, ItsWordsComeOutAndNothingOfThisProcessIsHeldOpen) {
  const UniqueFd null(::open("/dev/null", O_RDONLY));
  const UniqueFd kept(::fcntl(null.get(), F_DUPFD, 10));
  ForkedHelper helper([fd = kept.get()](int output) {
    const std::string text = fmt::format("{} {}", ::fcntl(fd, F_GETFD) == -1, ::getpgrp() == ::getpid());
    [[maybe_unused]] const ssize_t written = ::write(output, text.data(), text.size());
  });
  EXPECT_EQ(read_all(helper.take_output()), "true true");
}

// Launched pools have such threads.
TEST(ForkedHelper, WorksBesideThreadsThatSendBeats) {
  static constexpr std::size_t kSize = 100000;
  OrderSender one{std::chrono::milliseconds(0)};
  OrderSender other{std::chrono::milliseconds(0)};
  for (int i = 0; i < 100; ++i) {
    ForkedHelper helper([](int output) {
      const std::string text = fmt::format("{:>{}}", "done", kSize);
      [[maybe_unused]] const ssize_t written = ::write(output, text.data() + kSize - 4, 4);
    });
    ASSERT_EQ(read_all(helper.take_output()), "done");
  }
}

TEST(ForkedHelper, OneThatDiesOrThrowsEndsItsOutput) {
  EXPECT_EQ(read_all(ForkedHelper([](int) { ::raise(SIGKILL); }).take_output()), "");
  EXPECT_EQ(read_all(ForkedHelper([](int) { throw std::runtime_error("no"); }).take_output()), "");
}

TEST(ForkedHelper, OneThatHangsIsGoneWithItsOwner) {
  {
    const ForkedHelper helper([](int) {
      for (;;) ::pause();
    });
    EXPECT_EQ(list_descendants(::getpid()).size(), 1U);
  }
  EXPECT_THAT(list_descendants(::getpid()), testing::SizeIs(0));
}

TEST(Filter, GivesTheInputAndTakesBothOutputs) {
  const Filtered done = run_filter({"sh", "-c", "cat; echo said >&2; exit 3"}, "one\ntwo\n");
  EXPECT_EQ(done.out, "one\ntwo\n");
  EXPECT_EQ(done.err, "said\n");
  EXPECT_EQ(done.exit, (ExitStatus{false, 3}));
}

TEST(Filter, WritesAndReadsMoreThanPipesHold) {
  const std::string input(std::size_t{3} << 20U, 'x');
  EXPECT_EQ(run_filter({"cat"}, input).out, input);
}

TEST(Filter, MayStopReading) {
  const std::string input(std::size_t{3} << 20U, 'x');
  const Filtered done = run_filter({"sh", "-c", "exec <&-; echo enough"}, input);
  EXPECT_EQ(done.out, "enough\n");
  EXPECT_EQ(done.exit, (ExitStatus{false, 0}));
}

TEST(Filter, MayDieOfASignal) {
  EXPECT_EQ(run_filter({"sh", "-c", "kill -9 $$"}, "").exit, (ExitStatus{true, SIGKILL}));
}

TEST(Filter, ThatIsMissingIsNamed) {
  EXPECT_THROW(run_filter({"/no/such/program"}, ""), SpawnError);
}

}  // namespace
}  // namespace cp_pool
