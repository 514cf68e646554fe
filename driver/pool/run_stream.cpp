#include <cerrno>
#include <chrono>
#include <deque>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <asio/post.hpp>
#include <fmt/format.h>

#include "cases/file_reader.h"
#include "driver/core/run.h"
#include "driver/pool/runner.h"
#include "driver/ranks/pipes.h"
#include "worker/protocol/line_framer.h"

namespace cp_pool {

namespace {

// Opens the stream anew if the kernel allows it, because reading without blocking must not change the mode of a
// terminal or pipe that is shared with the caller's shell. (Sockets cannot be opened anew.)
UniqueFd reopen(int fd) {
  struct stat status{};
  // A file would be read from its beginning again; and reading it never blocks.
  const bool is_file = ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  UniqueFd out;
  if (!is_file)
    out.reset(::open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!out) out.reset(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!out) throw std::system_error(errno, std::generic_category(), "cannot read the stream of cases");
  return out;
}

constexpr std::chrono::seconds kPatience{1};  // after so long without data the user is told what is awaited

// Gives the runner the next case whenever fewer than `jobs` cases are running.
class Feeder {
 public:
  Feeder(CaseExecutor& runner, int fd, const ReadCase& read_case, int jobs)
      : runner_(runner),
        read_case_(read_case),
        jobs_(static_cast<std::size_t>(jobs)),
        silence_(runner.io()),
        reader_(std::make_shared<PipeReader>(
            runner.io(), reopen(fd), [this](std::string_view bytes) { on_data(bytes); },
            [this](std::error_code error) { on_end(error); })) {
    runner_.on_case_finished = [this](const CaseFinished& /*finished*/) {
      --running_;
      feed();
    };
    runner_.on_abandon = [this] { cut(); };
    reader_->start();
    // Tells the user what is awaited: at once at a terminal, otherwise after kPatience without data.
    const bool terminal = ::isatty(fd) == 1;
    silence_.set(terminal ? std::chrono::seconds{0} : kPatience, [terminal] {
      print_awaited_input(terminal ? "cases from the terminal, one JSON object a line; Ctrl-D ends them"
                                   : "cases from <stdin>, one JSON object a line");
    });
  }
  ~Feeder() { reader_->close(); }

  // Why the stream could not be read to its end, as a sentence; empty if it could.
  [[nodiscard]] const std::string& error() const { return error_; }
  // Whether the run was stopped before the end of the stream, so that nobody knows how many cases there would have
  // been.
  [[nodiscard]] bool was_cut() const { return cut_; }

 private:
  void on_data(std::string_view bytes) {
    silence_.cancel();
    for (protocol::Line& line : framer_.feed(bytes)) lines_.push_back(std::move(line));
    if (framer_.line_bytes() > kMostInputBytes && !ended_) {
      error_ = fmt::format("line {} of <stdin> has more than {} MiB: the rest is not read", framer_.line_number(),
                           kMostInputBytes >> 20U);
      ended_ = true;
      reader_->close();
    }
    feed();
    // Makes a writer wait that is faster than the cases run.
    if (!lines_.empty()) reader_->pause();
  }

  // Adds a newline, which the last line may lack.
  void on_end(std::error_code error) {
    if (error) error_ = fmt::format("cannot read the stream of cases: {}", error.message());
    ended_ = true;
    on_data("\n");
  }

  void feed() {
    while (running_ < jobs_ && !lines_.empty() && !stopped_) {
      const protocol::Line line = std::move(lines_.front());
      lines_.pop_front();
      auto named = read_case_(line);
      if (!named) continue;
      ++running_;
      runner_.add(*std::move(named));
    }
    if (!lines_.empty() || stopped_) return;
    if (!ended_) {
      reader_->resume();
    } else if (running_ == 0) {
      stop();
    }
  }

  void stop() {
    if (std::exchange(stopped_, true)) return;
    silence_.cancel();
    reader_->close();
    runner_.no_more_cases();
  }

  // Lines that have been read end as not run; nothing more is read.
  void cut() {
    cut_ |= !ended_;
    ended_ = true;
    silence_.cancel();
    reader_->close();
    if (runner_.failed()) return stop();
    feed();
  }

  CaseExecutor& runner_;
  const ReadCase& read_case_;
  std::size_t jobs_;
  Alarm silence_;
  std::shared_ptr<PipeReader> reader_;
  protocol::LineFramer framer_{protocol::LineFramer::Stream::requests};
  std::deque<protocol::Line> lines_;
  std::size_t running_ = 0;  // number of running cases
  std::string error_;
  bool ended_ = false;
  bool cut_ = false;
  bool stopped_ = false;
};

// Gives the runner the cases of a source, each as soon as there is room for it.
class Supply {
 public:
  Supply(Runner& runner, CaseSource& source, EventSink& sink, int ranks)
      : runner_(runner), source_(source), sink_(sink), room_(ranks) {
    runner_.on_case_finished = [this](const CaseFinished& finished) {
      --running_;
      room_.give_back(finished.payload->ranks());
      emit(source_.ended(finished));
      feed();
    };
    runner_.on_abandon = [this] {
      if (!std::exchange(abandoned_, true)) source_.abandoned();
      feed();
    };
    // Posted, so that the first case begins after run_started.
    asio::post(runner_.io(), [this] { feed(); });
  }

 private:
  void emit(const std::vector<Event>& events) {
    for (const Event& event : events) sink_.on_event(event);
  }

  void feed() {
    if (stopped_) return;
    while (!abandoned_) {
      auto named = source_.next(room_);
      if (!named) break;
      ++running_;
      room_.take(named->payload->ranks());
      runner_.add(*std::move(named));
    }
    if (running_ == 0 || runner_.failed()) stop();
  }

  void stop() {
    stopped_ = true;
    runner_.no_more_cases();
    // After a failure nothing is emitted, since it may be the sink that failed.
    if (!runner_.failed()) emit(source_.end());
  }

  Runner& runner_;
  CaseSource& source_;
  EventSink& sink_;
  Room room_;
  std::size_t running_ = 0;  // number of running cases
  bool abandoned_ = false;
  bool stopped_ = false;
};

}  // namespace

RunResult run_stream(int fd, const ReadCase& read_case, const RunConfig& config, const RunStarted& header,
                     EventSink& sink, int jobs) {
  // With one case at a time every pool may stay.
  Runner runner(config, sink, jobs == 1 ? std::nullopt : std::optional(slot_count(config)));
  return run_stream(runner, fd, read_case, jobs, header);
}

RunResult run_stream(CaseExecutor& runner, int fd, const ReadCase& read_case, int jobs, const RunStarted& header) {
  const Feeder feeder(runner, fd, read_case, jobs);
  RunResult result = runner.run(header);
  result.input_was_cut = feeder.was_cut();
  result.input_error = feeder.error();
  return result;
}

RunResult run_source(CaseSource& source, const RunConfig& config, const RunStarted& header, EventSink& sink) {
  // No limit on slots, so that every pool may stay: the room limits how many ranks work. So pools on GPUs do not get
  // GPUs of their own.
  Runner runner(config, sink, std::nullopt);
  const Supply supply(runner, source, sink, config.device == "cpu" ? slot_count(config) : 1);
  return runner.run(header);
}

}  // namespace cp_pool
