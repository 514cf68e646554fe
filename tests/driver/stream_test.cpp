// Cases that arrive one by one on a descriptor, as in `cp-pool submit -`.
#include <atomic>
#include <csignal>
#include <fcntl.h>
#include <string_view>
#include <unistd.h>

#include <gmock/gmock.h>

#include "cases/case_error.h"
#include "driver/os/spawn.h"
#include "driver/testing/attention.h"
#include "tests/driver/harness.h"

namespace cp_pool::driver_test {
namespace {

using namespace ::testing;

// A line is "model" or "model world_size"; "-" is refused.
std::optional<Item> read_case(const protocol::Line& framed) {
  const std::string_view line = framed.text;
  if (line == "-") return std::nullopt;
  const std::size_t space = line.find(' ');
  const int world_size = space == std::string_view::npos ? 2 : std::stoi(std::string(line.substr(space + 1)));
  return fake_case(std::string(line.substr(0, space)), world_size);
}

void write_line(const UniqueFd& fd, const std::string& line) {
  const std::string bytes = line + '\n';
  ASSERT_EQ(::write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
}

RunFinished stream(int fd, Recorder& recorder) {
  return run_stream(fd, read_case, fake_config(), {}, recorder).finished;
}

TEST(Stream, RunsItsCasesInOrderOnWarmPools) {
  Pipe pipe = make_pipe();
  for (const char* line : {"pass", "fail 1", "-", "pass", "", "skip 1"}) write_line(pipe.write, line);
  pipe.write.reset();
  const std::size_t descriptors = open_descriptors();
  Recorder recorder;
  const RunFinished finished = stream(pipe.read.get(), recorder);
  std::vector<std::string> order;
  for (const CaseFinished& f : recorder.all<CaseFinished>()) order.push_back(test::attention(f.payload).model);
  EXPECT_THAT(order, ElementsAre("pass", "fail", "pass", "skip"));
  EXPECT_THAT(recorder.all<PoolSpawned>(), SizeIs(2));
  EXPECT_EQ(finished.expanded, 4U);
  EXPECT_TRUE(finished.ledger_exact);
  EXPECT_EQ(finished.exit_code, 100);
  EXPECT_THAT(processes_left(), IsEmpty());
  EXPECT_EQ(open_descriptors(), descriptors);
}

TEST(Stream, AnswersEachCaseBeforeTheNextArrives) {
  Pipe pipe = make_pipe();
  Recorder recorder;
  int sent = 1;
  recorder.on<CaseFinished>([&](const CaseFinished&) {
    if (++sent > 3) return pipe.write.reset();
    write_line(pipe.write, "pass");
  });
  write_line(pipe.write, "pass");
  stream(pipe.read.get(), recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "pass", "pass"));
  EXPECT_THAT(recorder.retirements(), ElementsAre("finished"));
}

TEST(Stream, ReplacesAPoolWhoseRankDiesIdle) {
  Pipe pipe = make_pipe();
  Recorder recorder;
  std::vector<int> pids;
  recorder.on_each = [&](const Event& event) {
    if (const auto* spawned = std::get_if<PoolSpawned>(&event)) pids = spawned->pids;
    const auto* finished = std::get_if<CaseFinished>(&event);
    if (finished != nullptr && finished->index == 0) ::kill(pids.at(1), SIGKILL);
    // The death is reported although no case needs the pool. Only then does the next case come.
    const auto* retired = std::get_if<PoolRetired>(&event);
    if (retired != nullptr && retired->pool.generation == 1) write_line(pipe.write, "pass");
    if (finished != nullptr && finished->index == 1) pipe.write.reset();
  };
  write_line(pipe.write, "pass");
  stream(pipe.read.get(), recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "pass"));
  EXPECT_EQ(recorder.finished(1).attempts, 1);
  ASSERT_THAT(recorder.all<PoolRetired>(), SizeIs(2));
  EXPECT_THAT(recorder.all<PoolRetired>()[0].detail, testing::HasSubstr("idle, rank 1 died: signal 9 (SIGKILL)"));
}

// A pool that breaks between two cases is replaced at once, and costs the next case no attempt.
TEST(Stream, ReplacesAPoolThatBreaksIdle) {
  for (const auto& [model, reason] : {std::pair{"closes_stdin", "idle, rank 0 closed its stdin"},
                                      std::pair{"closes_stdout_when_idle", "idle, rank 0 closed its stdout"},
                                      std::pair{"garbage_when_idle", "a line that is no message"}}) {
    Pipe pipe = make_pipe();
    Recorder recorder;
    recorder.on_each = [&](const Event& event) {
      const auto* retired = std::get_if<PoolRetired>(&event);
      if (retired != nullptr && retired->pool.generation == 1) write_line(pipe.write, "pass");
      const auto* finished = std::get_if<CaseFinished>(&event);
      if (finished != nullptr && finished->index == 1) pipe.write.reset();
    };
    write_line(pipe.write, model);
    RunConfig config = fake_config();
    config.global_timeout = std::chrono::seconds(30);
    run_stream(pipe.read.get(), read_case, config, {}, recorder);
    EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "pass")) << model;
    EXPECT_THAT(recorder.all<PoolRetired>().at(0).detail, testing::HasSubstr(reason));
    EXPECT_THAT(recorder.all<CaseStarted>(), SizeIs(2)) << model;
  }
}

TEST(Stream, ReadsAFileWithoutALastNewline) {
  const TemporaryPath file("cases");
  std::ofstream(file.get()) << "pass\npass";
  const UniqueFd fd{::open(file.get().c_str(), O_RDONLY | O_CLOEXEC)};
  Recorder recorder;
  stream(fd.get(), recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "pass"));
}

TEST(Stream, DoesNotChangeTheModeOfTheDescriptor) {
  Pipe pipe = make_pipe();
  write_line(pipe.write, "pass");
  pipe.write.reset();
  Recorder recorder;
  stream(pipe.read.get(), recorder);
  EXPECT_EQ(::fcntl(pipe.read.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST(Stream, ThatIsInterruptedEndsWhileItWaits) {
  Pipe pipe = make_pipe();  // never closed by the writer
  write_line(pipe.write, "pass");
  Recorder recorder;
  recorder.on<CaseFinished>([](const CaseFinished&) { ::raise(SIGTERM); });
  EXPECT_EQ(stream(pipe.read.get(), recorder).exit_code, 130);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass"));
  EXPECT_THAT(processes_left(), IsEmpty());
}

TEST(Stream, ThatAGlobalTimeoutCutsSaysSo) {
  Pipe pipe = make_pipe();  // never closed by the writer
  for (const char* line : {"pass", "hang", "pass", "pass"}) write_line(pipe.write, line);
  RunConfig config = fake_config();
  config.global_timeout = std::chrono::milliseconds(1500) + 10 * time_of_a_pass(config);
  Recorder recorder;
  const RunResult result = run_stream(pipe.read.get(), read_case, config, {}, recorder);
  EXPECT_TRUE(result.input_was_cut);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "timeout", "not-run", "not-run"));
  EXPECT_EQ(result.finished.exit_code, 100);
  EXPECT_TRUE(result.finished.ledger_exact);
  EXPECT_THAT(processes_left(), IsEmpty());
}

TEST(Stream, ThatHasBeenReadToItsEndIsNotCut) {
  Pipe pipe = make_pipe();
  write_line(pipe.write, "until_cancelled");
  pipe.write.reset();
  Recorder recorder;
  recorder.on<CaseStarted>([](const CaseStarted&) { ::raise(SIGINT); });
  const RunResult result = run_stream(pipe.read.get(), read_case, fake_config(), {}, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("cancelled"));
  EXPECT_FALSE(result.input_was_cut);
}

TEST(Stream, ThrowsWhatItsSinkThrowsThoughMoreMayCome) {
  Pipe pipe = make_pipe();  // never closed by the writer
  for (const char* line : {"pass", "pass"}) write_line(pipe.write, line);
  Recorder recorder;
  recorder.on<CaseStarted>([](const CaseStarted&) { throw std::runtime_error("disk full"); });
  EXPECT_THROW(stream(pipe.read.get(), recorder), std::runtime_error);
  EXPECT_THAT(processes_left(), IsEmpty());
}

TEST(Stream, LetsAWriterWaitWhoIsFasterThanTheCases) {
  constexpr int kLines = 1000;
  Pipe pipe = make_pipe();
  std::atomic<int> written = 0;
  int written_at_the_tenth = kLines;
  Recorder recorder;
  recorder.on<CaseFinished>([&](const CaseFinished& finished) {
    if (finished.index == 9) written_at_the_tenth = written;
  });
  std::jthread writer([&] {
    const std::string padding(1000, ' ');
    for (; written < kLines; ++written) write_line(pipe.write, "pass 1" + padding);
    pipe.write.reset();
  });
  stream(pipe.read.get(), recorder);
  writer.join();
  EXPECT_EQ(recorder.outcomes().size(), kLines);
  EXPECT_LT(written_at_the_tenth, 300) << "a pipe and a buffer hold 64 KiB each";
}

// The stream begins at the offset of the file: lines before it have been read by the caller.
TEST(Stream, OfAFileBeginsWhereTheCallerLeftIt) {
  const TemporaryPath file("cases");
  std::ofstream(file.get()) << "fail\npass\nskip\n";
  const UniqueFd fd{::open(file.get().c_str(), O_RDONLY | O_CLOEXEC)};
  ASSERT_EQ(::lseek(fd.get(), 5, SEEK_SET), 5);
  Recorder recorder;
  EXPECT_EQ(stream(fd.get(), recorder).exit_code, 0);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "skip"));
  EXPECT_EQ(::lseek(fd.get(), 0, SEEK_CUR), 15);
}

TEST(Stream, OfNothingFinishesAtOnce) {
  const UniqueFd fd{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  Recorder recorder;
  EXPECT_EQ(stream(fd.get(), recorder).exit_code, 0);
}

// A file may end without a newline.
TEST(Stream, TakesALastLineWithoutItsNewlineHoweverLongItIs) {
  Pipe pipe = make_pipe();
  Recorder recorder;
  const std::string padding(std::size_t{100} << 10U, ' ');
  std::jthread writer([&] {
    write_line(pipe.write, "pass");
    const std::string last = padding + "x";
    std::size_t written = 0;
    while (written < last.size()) {
      const ssize_t n = ::write(pipe.write.get(), last.data() + written, last.size() - written);
      if (n <= 0) break;
      written += static_cast<std::size_t>(n);
    }
    pipe.write.reset();
  });
  std::vector<std::size_t> sizes;
  const auto read = [&](const protocol::Line& line) -> std::optional<Item> {
    sizes.push_back(line.text.size());
    return std::nullopt;
  };
  run_stream(pipe.read.get(), read, fake_config(), {}, recorder);
  EXPECT_THAT(sizes, ElementsAre(4U, padding.size() + 1));
}

TEST(Stream, SaysThatItCannotBeReadToItsEnd) {
  const UniqueFd folder{::open("/tmp", O_RDONLY | O_DIRECTORY)};
  Recorder recorder;
  const auto read = [](const protocol::Line&) -> std::optional<Item> { return std::nullopt; };
  const RunResult result = run_stream(folder.get(), read, fake_config(), {}, recorder);
  EXPECT_EQ(result.input_error, "cannot read the stream of cases: Is a directory");
  EXPECT_THAT(recorder.all<RunFinished>(), SizeIs(1));
}

// Only the beginning of an endless line is kept: the line is answered once, as over-long.
TEST(Stream, OneThatNeverEndsIsGivenUp) {
  const UniqueFd zeros{::open("/dev/zero", O_RDONLY | O_CLOEXEC)};
  Recorder recorder;
  std::vector<protocol::Line::Kind> lines;
  const auto read = [&](const protocol::Line& line) -> std::optional<Item> {
    lines.push_back(line.kind);
    return std::nullopt;
  };
  const RunResult result = run_stream(zeros.get(), read, fake_config(), {}, recorder);
  EXPECT_EQ(result.input_error, "line 1 of <stdin> has more than 256 MiB: the rest is not read");
  EXPECT_FALSE(result.input_was_cut);
  EXPECT_THAT(lines, ElementsAre(protocol::Line::Kind::over_long));
}

}  // namespace
}  // namespace cp_pool::driver_test
