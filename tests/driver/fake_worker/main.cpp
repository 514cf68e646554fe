// A worker that computes nothing and does what the model of a case says: pass, fail, sigsegv, hang@1 (rank 1 hangs),
// sleeps_20 (for 20 ms), .. Its options:
//   --start=KIND      how it starts, if not normally
//   --start-rank=N    the rank that starts so, by default 0
//   --starts=FILE     a file that counts the starts
//   --bad-starts=N    only the first N starts are of that kind
//   --offers=NAME     adds prepare or cancel to capabilities.requests
//   --case-field=NAME adds a field to capabilities.case_fields
//   --options=NAME    adds an option to capabilities.options
//   --figures         promises figures in its capabilities
//   --counter=FILE    counts cases over all starts (see state.h, which also says what cases leave behind)
//   --steps=FILE      a file that grows by a byte when a case begins, and by another when its result has been written
// --offers, --case-field and --options may be repeated.
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tests/driver/fake_worker/diagnosis.h"
#include "tests/driver/fake_worker/faults.h"
#include "tests/driver/fake_worker/state.h"
#include "worker/protocol/line_framer.h"

namespace cp_pool::fake {
namespace {

struct Options {
  std::string start = "good";
  int start_rank = 0;
  std::string starts_file;
  int bad_starts = 1 << 30;
  std::vector<std::string> offers;
  bool figures = false;
  std::string counter;
  std::string steps_file;
  std::vector<std::string> case_fields;
  std::vector<std::string> options;
};

Options parse_options(int argc, char** argv) {
  Options out;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg{argv[i]};
    const std::string value{arg.substr(arg.find('=') + 1)};
    if (arg.starts_with("--start=")) out.start = value;
    if (arg.starts_with("--start-rank=")) out.start_rank = std::atoi(value.c_str());
    if (arg.starts_with("--starts=")) out.starts_file = value;
    if (arg.starts_with("--bad-starts=")) out.bad_starts = std::atoi(value.c_str());
    if (arg.starts_with("--offers=")) out.offers.push_back(value);
    if (arg.starts_with("--counter=")) out.counter = value;
    if (arg.starts_with("--steps=")) out.steps_file = value;
    if (arg == "--figures") out.figures = true;
    if (arg.starts_with("--options=")) out.options.push_back(value);
    if (arg.starts_with("--case-field=")) out.case_fields.push_back(value);
  }
  return out;
}

// Appends a byte to the file. Returns the size of the file, which is the number of this call, from 1.
int count_in(const std::string& file) {
  if (file.empty()) return 1;
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  write_all(fd, ".");
  struct stat info{};
  ::fstat(fd, &info);
  ::close(fd);
  return static_cast<int>(info.st_size);
}

void respond(const protocol::Event& event) {
  write_all(STDOUT_FILENO, protocol::format_response(event));
}

void start_badly(const std::string& kind) {
  if (kind == "never_ready") hang();
  if (kind == "ready_without_prefix") {
    write_all(STDOUT_FILENO, "{\"event\": \"ready\"}\n \t\r\n");
    hang();
  }
  if (kind == "exit_127") _exit(127);
  if (kind == "no_device") _exit(protocol::kExitNoDevice);
  if (kind == "too_few_devices") _exit(protocol::kExitTooFewDevices);
  if (kind == "exit_1") {
    write_all(STDERR_FILENO, "no license for this machine\n");
    _exit(1);
  }
  if (kind == "wrong_version") {
    respond(protocol::ProtocolErrorEvent{std::nullopt, "this worker speaks 2..3 only"});
    _exit(protocol::kExitNoCommonVersion);
  }
  if (kind == "result_before_ready") {
    protocol::ResultEvent result;
    result.seq = 1;
    respond(result);
    hang();
  }
  if (kind == "garbage") {
    write_all(STDOUT_FILENO, fmt::format("{}{{ready}}\n", protocol::kResponsePrefix));
    hang();
  }
  if (kind == "ignore_sigterm") {
    ::signal(SIGTERM, SIG_IGN);
    hang();
  }
  commit_fault(kind);
}

void print_where_it_stands(int /*signal*/) {
  constexpr std::string_view kText = "stack of this rank\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kText.data(), kText.size());
}

sigset_t only_sigusr1() {
  sigset_t out;
  sigemptyset(&out);
  sigaddset(&out, SIGUSR1);
  return out;
}

void sleep_ms(int ms) {
  const timespec time{ms / 1000, (ms % 1000) * 1000000L};
  ::nanosleep(&time, nullptr);
}

void wait_for_sigusr1() {
  const sigset_t signals = only_sigusr1();
  while (::sigwaitinfo(&signals, nullptr) != SIGUSR1) {
  }
}

class RankZero {
 public:
  RankZero(const protocol::RankEnvironment& environment, int generation, const Options& options)
      : environment_(environment),
        generation_(generation),
        ranks_(environment),
        state_(options.counter),
        steps_file_(options.steps_file) {
    const std::string& start = options.start;
    protocol::ReadyEvent ready;
    ready.protocol = start == "protocol_2" ? 2 : protocol::kVersion;
    ready.worker = "fake 1";
    ready.world_size = start == "wrong_world_size" ? environment.world_size + 1 : environment.world_size;
    ready.device = environment.device;
    ready.ranks.push_back({0, "here", ::getpid()});
    if (!options.offers.empty()) ready.capabilities["requests"] = options.offers;
    if (!options.options.empty()) ready.capabilities["options"] = options.options;
    if (options.figures) ready.capabilities["figures"] = true;
    if (!options.case_fields.empty()) ready.capabilities["case_fields"] = options.case_fields;
    for (const int pid : ranks_.pids()) ready.ranks.push_back({static_cast<int>(ready.ranks.size()), "here", pid});
    respond(ready);
  }

  void serve() {
    while (const auto line = requests_.next()) {
      const protocol::Request request = protocol::parse_request(*line);
      if (std::holds_alternative<protocol::ShutdownRequest>(request) && !ignores_shutdown_) _exit(0);
      if (const auto* ping = std::get_if<protocol::PingRequest>(&request)) answer(*ping);
      if (const auto* prepare = std::get_if<protocol::PrepareRequest>(&request)) {
        say(fmt::format("prepares {} seq {} lengths {}", prepare->case_json.at("model").get<std::string>(),
                        prepare->seq, prepare->lengths.at("valid_q").dump()));
      }
      if (const auto* run = std::get_if<protocol::RunRequest>(&request)) run_case(*run);
    }
  }

 private:
  void answer(const protocol::PingRequest& ping) {
    protocol::PongEvent pong{ping.seq, {0}};
    for (int rank = 1; ping.all && rank < environment_.world_size; ++rank) pong.ranks.push_back(rank);
    respond(pong);
  }

  void run_case(const protocol::RunRequest& request) {
    const auto model = request.case_json.at("model").get<std::string>();
    const std::size_t at = model.find('@');
    const std::string kind = model.substr(0, at);
    const int rank = at == std::string::npos ? 0 : std::atoi(model.c_str() + at + 1);
    if (kind == "die_before_started" || (kind == "die_before_started_once" && generation_ == 1)) _exit(4);
    if (kind == "hang_once" && generation_ == 1) hang();
    if (kind == "exits_at_first" && generation_ == 1) exit_when_started(request.seq);
    if (kind == "garbage_before_started") respond_raw("{oops");
    if (kind == "refuse") return respond(protocol::ProtocolErrorEvent{request.seq, "no such case here"});
    respond(protocol::StartedEvent{request.seq});
    say(fmt::format("rank 0 starts {} seq {}", model, request.seq));
    for (int r = 1; r < environment_.world_size; ++r) {
      ranks_.tell(r, fmt::format("say rank {} starts {} seq {}", r, model, request.seq));
    }
    if (rank > 0) {
      ranks_.tell(rank, kind);
    } else if (!commit_fault(kind) && break_protocol(kind, request.seq)) {
      return;
    }
    if (kind.starts_with("until_cancelled")) wait_for_cancel(request.seq);
    if (kind == "pinged") {
      answer_ping(wait_for_ping());
      wait_for_ping();  // a second ping shows that the driver has read the answer
    }
    count_in(steps_file_);
    if (kind == "until_sigusr1") wait_for_sigusr1();
    if (kind == "pass_when_late") wait_for_sigusr2();
    if (kind.starts_with("sleeps_")) sleep_ms(std::atoi(kind.c_str() + std::string_view("sleeps_").size()));
    if (kind == "ignores_shutdown") ignores_shutdown_ = true;
    if (kind == "invalid_utf8") say("bad \xff\xfe bytes and \x1b[31mcolour\x1b[0m");
    if (kind != "no_fence") fence(request.seq);
    speak_too_early(kind, request.seq);
    protocol::ResultEvent result = result_of(kind, request.seq);
    if (state_.run(kind)) {
      result.outcome = kind == "errors_at_first" ? CaseOutcome::error : CaseOutcome::fail;
      result.reason = fmt::format("{} found what another left", kind);
    }
    // diag_unasked promises a diagnosis even if it was not asked for one.
    result.diagnosing = is_diagnosed(kind) && (request.options.diagnosis_ms || kind == "diag_unasked");
    if (kind == "tells_its_case") {
      result.outcome = CaseOutcome::fail;
      result.reason = request.case_json.dump();
    }
    respond(result);
    count_in(steps_file_);
    if (result.diagnosing && request.options.diagnosis_ms) diagnose(kind, request.seq, ranks_);
    if (kind == "two_results") respond(result_of(kind, request.seq));
    after_result(kind);
  }

  [[noreturn]] static void exit_when_started(std::int64_t seq) {
    respond(protocol::StartedEvent{seq});
    _exit(3);
  }

  void wait_for_cancel(std::int64_t seq) {
    while (const auto line = requests_.next()) {
      const protocol::Request request = protocol::parse_request(*line);
      const auto* const cancel = std::get_if<protocol::CancelRequest>(&request);
      if (cancel != nullptr && cancel->seq == seq) return;
    }
    _exit(0);
  }

  // Waits during a case for a ping to all ranks. Returns its seq.
  std::int64_t wait_for_ping() {
    while (const auto line = requests_.next()) {
      const protocol::Request request = protocol::parse_request(*line);
      const auto* const ping = std::get_if<protocol::PingRequest>(&request);
      if (ping != nullptr && ping->all) return ping->seq;
    }
    _exit(0);
  }

  // Answers a ping: the ranks stand in different phases.
  static void answer_ping(std::int64_t seq) {
    respond(protocol::PongEvent{
        seq, {0, 1}, {{0, "barrier", 3200, "barrier on group cp: after the case", 3100}, {1, "forward", 3300, "", 0}}});
  }

  // Breaks the protocol as the kind says. Returns true if the case needs no more.
  bool break_protocol(const std::string& kind, std::int64_t seq) {
    if (kind == "half_line") {
      write_all(STDOUT_FILENO,
                fmt::format("{}{{\"event\":\"result\",\"seq\":{},\"out", protocol::kResponsePrefix, seq));
      hang();
    }
    if (kind == "garbage_after_sentinel") {
      respond_raw("{\"event\":\"result\", this is not JSON");
      hang();
    }
    if (kind == "deep_json") {
      respond_raw(R"({"event":"result","seq":)" + std::string(std::size_t{8} << 20U, '['));
      hang();
    }
    if (kind == "long_line") {
      respond_raw(std::string(std::size_t{17} << 20U, 'x'));
      hang();
    }
    if (kind == "wrong_seq") {
      respond(result_of("pass", seq + 1000));
      hang();
    }
    if (kind == "closes_stdout") {
      ::close(STDOUT_FILENO);
      hang();
    }
    if (kind == "half_result_then_exit") {
      write_all(STDOUT_FILENO, fmt::format("{}{{\"event\":\"result\",\"seq\":{}", protocol::kResponsePrefix, seq));
      _exit(3);
    }
    if (kind.starts_with("progress_then_")) respond(protocol::ProgressEvent{seq, "backward"});
    if (kind == "progress_then_hang") hang();
    if (kind == "progress_then_exit") _exit(3);
    return false;
  }

  protocol::ResultEvent result_of(const std::string& kind, std::int64_t seq) {
    protocol::ResultEvent out;
    out.seq = seq;
    out.outcome = CaseOutcome::pass;
    out.backend = "math";
    for (int rank = 0; rank < environment_.world_size; ++rank) {
      out.ranks.push_back({{.output_hash = "cafe"}, rank});
      out.hygiene.push_back({rank, 1000 + 1000 * rank, 10 + 1000 * rank, 2 + 1000 * rank});
    }
    if (kind == "unhealthy") {
      out.healthy = false;
      out.reason = "the communicator cannot be rebuilt";
    }
    const auto outcome = parse_name<CaseOutcome>(kind);
    if (outcome && is_of_a_worker(*outcome)) out.outcome = *outcome;
    if (kind == "invalid_utf8" || kind == "no_fence" || kind == "error_then_exit" || kind == "unhealthy") {
      out.outcome = CaseOutcome::error;
    }
    if (kind == "until_cancelled") out.outcome = CaseOutcome::cancelled;
    if (kind == "fail_then_exit" || kind == "chatter_stderr" || is_diagnosed(kind)) out.outcome = CaseOutcome::fail;
    contradict(kind, out);
    if (kind == "full_result") fill(out);
    if (out.outcome != CaseOutcome::pass && out.reason.empty()) out.reason = fmt::format("it is {}", kind);
    return out;
  }

  static void contradict(const std::string& kind, protocol::ResultEvent& result) {
    if (kind == "pass_of_wrong_numbers") {
      Check& check = result.checks.emplace_back();
      check.tensor = "dq";
      check.rank = 1;
      check.ok = false;
    }
    if (kind == "pass_beyond_bound" || kind == "pass_of_nan" || kind == "pass_within_bound") {
      for (const protocol::RankResult& rank : result.ranks) {
        Check& check = result.checks.emplace_back();
        check.tensor = "dq";
        check.rank = rank.rank;
        check.error = 0.5;
        check.bound = kind == "pass_beyond_bound" && rank.rank == 1 ? 0.25 : 1;
        if (kind == "pass_of_nan" && rank.rank == 1) check.error = std::nan("");
      }
    }
    if (kind == "pass_that_lacks_a_rank") result.ranks.pop_back();
    if (kind == "check_of_rank_too_many") {
      Check& check = result.checks.emplace_back();
      check.tensor = "dq";
      check.rank = static_cast<int>(result.ranks.size());
    }
    if (kind == "pass_of_failed_rank") result.ranks.back().ok = false;
    if (kind == "rank_too_many") result.ranks.back().rank = static_cast<int>(result.ranks.size());
    if (kind == "rank_twice") result.ranks.front().rank = result.ranks.back().rank;
  }

  // Fills every text that a report shows, with colour sequences that no report may contain.
  static void fill(protocol::ResultEvent& result) {
    const std::string red = "\x1b[31m";
    result.outcome = CaseOutcome::fail;
    result.ranks.back().ok = false;
    result.ranks.back().error = red + "an error";
    Check& check = result.checks.emplace_back();
    check.tensor = red + "dq";
    check.rank = 1;
    check.ok = false;
    check.message = red + "a message";
    result.timings_ms["forward"] = 1.5;
    result.backend = red + "a backend";
    result.backend_note = red + "a note";
  }

  void after_result(const std::string& kind) {
    if (kind == "result_then_death" || kind == "fail_then_exit" || kind == "error_then_exit") _exit(3);
    if (kind == "stops_reading") hang();
    if (kind == "closes_stdin") {
      ::close(STDIN_FILENO);
      hang();
    }
    if (kind == "closes_stdout_when_idle") {
      ::close(STDOUT_FILENO);
      hang();
    }
    if (kind == "garbage_when_idle") respond_raw("{late");
  }

  void fence(std::int64_t seq) {
    for (int rank = 1; rank < environment_.world_size; ++rank) ranks_.tell(rank, fmt::format("fence {}", seq));
    write_all(STDERR_FILENO, protocol::format_fence(seq));
  }

  static void respond_raw(const std::string& text) {
    write_all(STDOUT_FILENO, fmt::format("\n{}{}\n", protocol::kResponsePrefix, text));
  }

  static void say(const std::string& text) { write_all(STDERR_FILENO, text + '\n'); }

  protocol::RankEnvironment environment_;
  int generation_;
  Ranks ranks_;
  LineReader requests_{STDIN_FILENO};
  State state_;
  std::string steps_file_;
  bool ignores_shutdown_ = false;
};

int run(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  const protocol::RankEnvironment environment = protocol::read_environment();
  const sigset_t waited_for = only_sigusr1();  // blocked, because it may come before a case waits for it
  ::sigprocmask(SIG_BLOCK, &waited_for, nullptr);
  ::signal(SIGUSR2, print_where_it_stands);
  const bool first = environment.rank == 0;
  const int generation = first ? count_in(options.starts_file) : 1;
  if (environment.rank == options.start_rank && generation <= options.bad_starts) start_badly(options.start);
  if (!first) serve_rank_zero(environment);
  RankZero(environment, generation, options).serve();
  return 0;
}

}  // namespace
}  // namespace cp_pool::fake

int main(int argc, char** argv) {
  return cp_pool::fake::run(argc, argv);
}
