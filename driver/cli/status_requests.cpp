#include "driver/cli/status_requests.h"

#include <cerrno>
#include <iterator>
#include <poll.h>
#include <set>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/core/figures.h"
#include "driver/core/mapped.h"
#include "driver/report/case_text.h"
#include "driver/report/text_format.h"

namespace cp_pool {
namespace {

// Returns the values of a map, the oldest first.
template <class Map>
auto by_age(const Map& map) {
  auto out = mapped(map, [](const auto& entry) { return &entry.second; });
  std::ranges::stable_sort(out, {}, &Map::mapped_type::since);
  return out;
}

// Returns an operation without the ranks in its name, which stand first. Ranks that wait for their neighbours are in
// operations that differ only in that part.
std::string_view without_ranks(std::string_view operation) {
  const std::size_t colon = operation.find(": ");
  return colon == std::string_view::npos ? operation : operation.substr(colon + 2);
}

bool stand_together(const RankStanding& one, const RankStanding& other) {
  return one.silent == other.silent && one.phase == other.phase && one.operation.empty() == other.operation.empty() &&
         without_ranks(one.operation) == without_ranks(other.operation);
}

// Returns a line for ranks that stand together: "  ranks 0-6: in forward for 3.1 s, for 3 s in all_to_all on
// group cp: k".
std::vector<std::string> standing_lines(const std::vector<RankStanding>& ranks, double ms_ago) {
  std::vector<std::vector<const RankStanding*>> groups;
  for (const RankStanding& rank : ranks) {
    if (!rank.silent && rank.phase.empty()) continue;
    const auto known = std::ranges::find_if(groups, [&](const auto& g) { return stand_together(*g.front(), rank); });
    (known == groups.end() ? groups.emplace_back() : *known).push_back(&rank);
  }
  std::vector<std::string> out;
  for (const auto& group : groups) {
    const RankStanding& first = *group.front();
    std::string& line = out.emplace_back(fmt::format("  {}: ", name_ranks(mapped(group, &RankStanding::rank))));
    if (first.silent) {
      line += group.size() == 1 ? "does not answer" : "do not answer";
      continue;
    }
    const auto shortest = [&](double RankStanding::* ms) {
      return format_duration(std::ranges::min(mapped(group, ms)) + ms_ago);
    };
    line += fmt::format("in {} for {}", first.phase, shortest(&RankStanding::ms));
    if (!first.operation.empty()) {
      const bool all = std::ranges::all_of(group, [&](const auto* r) { return r->operation == first.operation; });
      line += fmt::format(", for {} in {}{}", shortest(&RankStanding::operation_ms), first.operation,
                          all ? "" : fmt::format(" (rank {}; the others likewise)", first.rank));
    }
    std::ranges::replace(line, '\n', ' ');
  }
  return out;
}

// A pool waits 1.2 s for the answer of its worker.
constexpr std::chrono::milliseconds kPatience{1500};

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): what a signal handler may touch
volatile std::sig_atomic_t status_asked = 0;

extern "C" void note_status_request(int /*signal*/) {
  status_asked = 1;
}

// A background process that changes its terminal is stopped.
bool is_in_foreground() {
  return ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
}

}  // namespace

void RunningNow::ask() {
  for (auto& [index, running] : cases_) {
    running.ranks.clear();
    running.asked = true;
  }
}

void RunningNow::on_event(const Event& event) {
  const auto now = Clock::now();
  if (const auto* run = std::get_if<RunStarted>(&event)) {
    expected_ = run->cases;
  } else if (const auto* spawned = std::get_if<PoolSpawned>(&event)) {
    pools_[spawned->pool] = {.event = *spawned, .since = now};
  } else if (const auto* ready = std::get_if<PoolReady>(&event)) {
    const auto pool = pools_.find(ready->pool);
    if (pool != pools_.end()) pool->second.ready = true;
  } else if (const auto* retired = std::get_if<PoolRetired>(&event)) {
    pools_.erase(retired->pool);
  } else if (const auto* started = std::get_if<CaseStarted>(&event)) {
    cases_[started->index] = {.event = *started, .since = now, .told = now, .answered = now};
  } else if (const auto* progress = std::get_if<CaseProgress>(&event)) {
    const auto running = cases_.find(progress->index);
    if (running == cases_.end()) return;
    if (!progress->ranks.empty()) {
      running->second.ranks = progress->ranks;
      running->second.answered = now;
      running->second.asked = false;
    }
    if (running->second.phase == progress->phase) return;
    running->second.phase = progress->phase;
    running->second.told = now;
  } else if (const auto* done = std::get_if<CaseFinished>(&event)) {
    cases_.erase(done->index);
    ++finished_;
  }
}

std::vector<std::string> RunningNow::lines(Clock::time_point now) const {
  std::set<PoolId> busy;
  for (const auto& [index, running] : cases_) busy.insert(running.event.pool);
  std::size_t starting = 0;
  std::size_t idle = 0;
  for (const auto& [id, pool] : pools_) {
    starting += pool.ready ? 0 : 1;
    idle += pool.ready && !busy.contains(id) ? 1 : 0;
  }
  const std::string of = expected_ > 0 ? fmt::format(" of {}", expected_) : "";
  std::vector<std::string> out{fmt::format("{}{} finished; {} running, {} starting, {} idle", finished_, of,
                                           count_of(cases_.size(), "case"), count_of(starting, "pool"),
                                           count_of(idle, "pool"))};
  for (const RunningCase* running : by_age(cases_)) {
    const CaseStarted& started = running->event;
    std::string ranks;
    if (const auto pool = pools_.find(started.pool); pool != pools_.end()) {
      const PoolSpawned& spawned = pool->second.event;
      ranks = fmt::format(" ({}{}{})", count_of(spawned.world_size, "rank"), spawned.pids.empty() ? "" : ", processes ",
                          fmt::join(spawned.pids, ", "));
    }
    const std::string phase = running->phase.empty() ? "no phase reported"
                                                     : fmt::format("in {} for {}", running->phase,
                                                                   format_duration(in_ms(now - running->told)));
    out.push_back(fmt::format("{} has been running for {} on {}{}{}, {}", started.id,
                              format_duration(in_ms(now - running->since)), pool_name(started.pool), ranks,
                              started.attempt > 1 ? fmt::format(", attempt {}", started.attempt) : "", phase));
    std::ranges::move(standing_lines(running->ranks, in_ms(now - running->answered)), std::back_inserter(out));
  }
  for (const RunningPool* pool : by_age(pools_)) {
    if (pool->ready) continue;
    out.push_back(fmt::format("{} has been starting for {}", pool_name(pool->event.pool),
                              format_duration(in_ms(now - pool->since))));
  }
  return out;
}

StatusRequests::StatusRequests(std::function<void(const std::string& line)> show, bool keys)
    : show_{std::move(show)}, keys_{keys && ::isatty(STDIN_FILENO) == 1} {
  struct sigaction action{};
  action.sa_handler = note_status_request;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR1, &action, &before_);
}

StatusRequests::~StatusRequests() {
  restore_terminal();
  ::sigaction(SIGUSR1, &before_, nullptr);
}

void StatusRequests::on_event(const Event& event) {
  running_.on_event(event);
  if (open_ && taken_up_ && running_.answered()) answer();
  if (!std::holds_alternative<RunFinished>(event)) return;
  restore_terminal();
  keys_ = false;
}

void StatusRequests::on_tick() {
  if (keys_) take_keys();
  if (open_) {  // requests that come meanwhile get the same answer
    if (!taken_up_ || running_.answered() || Clock::now() >= limit_) answer();
    return;
  }
  if (status_asked == 0) return;
  running_.ask();
  open_ = true;
  taken_up_ = false;
  ++requests_;
  limit_ = Clock::now() + kPatience;
  if (running_.answered()) answer();  // no case is running
}

std::uint64_t StatusRequests::take_requests() {
  taken_up_ = open_;
  return requests_;
}

void StatusRequests::answer() {
  open_ = false;
  status_asked = 0;
  for (const std::string& line : running_.lines(Clock::now())) show_(line);
}

// A shell may have changed the terminal after a stop (Ctrl-Z), so the settings are checked each time.
void StatusRequests::take_keys() {
  if (!is_in_foreground()) return;
  termios now{};
  if (::tcgetattr(STDIN_FILENO, &now) != 0) return;
  if ((now.c_lflag & ICANON) != 0) {
    terminal_ = now;
    now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // Ctrl-C and Ctrl-Z stay signals
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &now);
  }
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  while (::poll(&input, 1, 0) == 1 && (input.revents & POLLIN) != 0) {
    std::array<char, 64> typed{};
    const ssize_t size = ::read(STDIN_FILENO, typed.data(), typed.size());
    if (size <= 0) {
      keys_ = keys_ && size < 0 && errno == EINTR;
      return;
    }
    if (std::string_view{typed.data(), static_cast<std::size_t>(size)}.find('t') != std::string_view::npos) {
      status_asked = 1;
    }
  }
}

void StatusRequests::restore_terminal() {
  if (terminal_ && is_in_foreground()) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &*terminal_);
  terminal_.reset();
}

}  // namespace cp_pool
