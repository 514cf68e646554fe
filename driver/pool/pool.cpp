#include "driver/pool/pool.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cases/error_reason.h"
#include "driver/core/rank_environment.h"
#include "driver/os/helper_process.h"
#include "driver/ranks/fork_server.h"
#include "driver/ranks/pipes.h"
#include "worker/protocol/frame_names.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

constexpr int kMaxBlockingSweeps = 20;
constexpr std::chrono::seconds kNamingLimit{3};

// If file descriptors ran out, the text names the limit, which the user can raise.
StartFailure not_started(int error, const char* what, bool permanent) {
  const std::error_code code(error, std::generic_category());
  StartFailure out;
  out.retirement.reason = RetireReason::start_failed;
  out.retirement.detail = code == std::errc::too_many_files_open ? error_reason(code) : what;
  out.permanent = permanent;
  return out;
}

// Run by the helper process: writes a line [INDEX,[CALL,..]] for each frame that it has found.
void write_names(const std::vector<FrameAddress>& frames, int output) {
  look_up_frames(frames, [&](const FrameAddress& frame, const std::vector<std::string>& calls) {
    const nlohmann::json named{std::ranges::find(frames, frame) - frames.begin(), calls};
    const std::string line = named.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
    [[maybe_unused]] const ssize_t written = ::write(output, line.data(), line.size());
  });
}

FrameNames read_names(const std::vector<FrameAddress>& frames, std::string_view text) {
  FrameNames names;
  for (const std::string_view line : protocol::lines_of(text)) {
    const nlohmann::json named = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    // The last line is incomplete if the helper was ended.
    if (!named.is_discarded())
      names[frames.at(named.at(0).get<std::size_t>())] = named.at(1).get<std::vector<std::string>>();
  }
  return names;
}

// Adds function names to the stacks in the ranks' stderr without blocking the event loop. Frames that cannot be named
// within kNamingLimit are left as the rank wrote them.
asio::awaitable<void> name_frames(RunContext& run, Wakeup& wakeup, std::vector<StderrTail>& tails) {
  std::string texts;
  for (const StderrTail& tail : tails) texts += tail.text;
  const std::vector<FrameAddress> frames = raw_frames(texts);
  if (frames.empty()) co_return;
  std::unique_ptr<ForkedHelper> helper;
  try {
    helper = std::make_unique<ForkedHelper>([&](int output) { write_names(frames, output); });
  } catch (const std::system_error&) {  // too many processes: the stacks go without names
    co_return;
  }
  run.host.ranks.insert(helper->pid());
  std::string answer;
  bool complete = false;
  const auto reader = std::make_shared<PipeReader>(
      run.host.io, helper->take_output(), [&](std::string_view bytes) { answer += bytes; },
      [&](std::error_code) {
        complete = true;
        wakeup.notify();
      });
  reader->start();
  const auto limit = Clock::now() + kNamingLimit;
  while (!complete && !run.stop.kill_at_once && Clock::now() < limit) co_await wakeup.wait_until(limit);
  reader->close();
  const pid_t pid = helper->pid();
  helper.reset();
  run.host.ranks.erase(pid);
  const FrameNames names = read_names(frames, answer);
  for (StderrTail& tail : tails) tail.text = with_names(tail.text, names);
}

}  // namespace

Pool::Pool(RunContext& home, RankStart start, PoolId id, int world_size, PoolPlace place, TakeCase take_case)
    : host_(home.host),
      home_(home),
      start_(start),
      id_(std::move(id)),
      world_size_(world_size),
      place_(std::move(place)),
      take_case_(std::move(take_case)),
      wakeup_(home.host.io),
      tag_(random_tag()),
      processes_(tag_),
      oom_kills_before_(oom_kills()),
      machine_(*this, {.pool = {.pool = id_, .world_size = world_size_, .slots = place_.slots, .gpus = place_.gpus},
                       .start_timeout = start_timeout_of(*start_.config, world_size_),
                       .home = &home_.config}) {
  host_.add(wakeup_);
}

// Kills ranks only if an exception ends the run: then there is no time for grace, and nobody to report to.
Pool::~Pool() {
  host_.remove(wakeup_);
  if (!group_) return;
  processes_.find();
  group_->kill();
  for (int clean = 0, passes = 0; clean < PoolMachine::kCleanSweeps && passes < kMaxBlockingSweeps; ++passes) {
    clean = processes_.kill_all() == 0 ? clean + 1 : 0;
  }
}

asio::awaitable<PoolMachine::Finished> Pool::next() {
  for (;;) {
    if (std::optional<PoolMachine::Finished> finished = machine_.look(Clock::now())) {
      if (auto* const failure = std::get_if<StartFailure>(&*finished)) {
        if (failure->stderr_tails.empty()) failure->stderr_tails = std::exchange(tails_, {});
        co_await name_frames(home_, wakeup_, failure->stderr_tails);
      }
      if (auto* const conclusion = std::get_if<Conclusion>(&*finished)) co_await complete(*conclusion);
      co_return *std::move(finished);
    }
    co_await wakeup_.wait_until(machine_.next_look());
  }
}

asio::awaitable<void> Pool::complete(Conclusion& conclusion) {
  for (const LostOutput& lost : conclusion.result.lost_outputs) run().lose_output("--" + lost.output, lost.message);
  conclusion.stderr_tails = std::exchange(tails_, {});
  co_await name_frames(run(), wakeup_, conclusion.stderr_tails);
  if (is_failure(conclusion.outcome)) {
    conclusion.reason += group_->locate_ranks_in(conclusion.reason);
    const std::string trouble = describe_clock_change(clocks_, MachineClocks::now());
    if (!trouble.empty()) conclusion.reason += "; " + trouble;
  }
  if (conclusion.diagnosis) {
    if (case_->named->runs > 1) run().diagnosed.insert(case_->named->id);
    run().known_mistakes.note(*conclusion.diagnosis, case_->named->id);
  }
  case_.reset();
}

void Pool::begin_to_retire(Retirement retirement) {
  processes_.find();  // while parents still live, because a child with another environment is found through them
  machine_.retire(std::move(retirement), Clock::now());
}

asio::awaitable<void> Pool::retire(Retirement retirement) {
  begin_to_retire(std::move(retirement));
  (void)co_await next();
}

PoolFacts Pool::facts() {
  PoolFacts out;
  if (group_) out.ranks = group_->facts();
  if (start_.fork_server != nullptr) out.server = start_.fork_server->facts();
  out.stop = run().stop;
  out.pausing = host_.pausing();
  out.wanted = wanted_;
  out.status_requests = run().status_requests;
  return out;
}

std::optional<CaseToRun> Pool::take_case() {
  std::optional<Next> taken = take_case_();
  if (!taken) return std::nullopt;
  case_.emplace(*std::move(taken));
  clocks_ = MachineClocks::now();
  sent_lines_.clear();
  return CaseToRun{.config = &case_->run->config,
                   .named = case_->named,
                   .started = case_->started,
                   .next = case_->next,
                   .name_of_files = case_->run->output_names.own_name(case_->started.index),
                   .was_diagnosed = case_->run->diagnosed.contains(case_->named->id),
                   .known_mistakes = case_->run->known_mistakes.for_next_case()};
}

void Pool::start_server() {
  start_.fork_server->start();
}

std::optional<StartFailure> Pool::spawn(bool fork) {
  std::optional<StartFailure> failure;
  try {
    make_group(fork);
    group_->spawn();
  } catch (const SpawnError& error) {
    failure = not_started(error.error, error.what(), error.permanent());
  } catch (const std::system_error& error) {
    failure = not_started(error.code().value(), error.what(), false);
  }
  if (group_) {
    const std::vector<int> children = group_->children();
    host_.ranks.insert(children.begin(), children.end());
  }
  return failure;
}

void Pool::make_group(bool fork) {
  const RunConfig& start = *start_.config;
  WorkerGroup::Config config{.run = &start, .world_size = world_size_, .tag = tag_};
  if (home_.config.run_dir) {
    config.logs.dir = log_folder(*home_.config.run_dir, id_);
    config.logs.on_error = [this](std::string message) { home_.lose_output("--run-dir", std::move(message)); };
  }
  config.variables = {{kEnvStartTimeout, std::to_string(start_timeout_of(start, world_size_).count())}};
  if (!place_.gpus.empty()) {
    config.variables.emplace_back("CUDA_VISIBLE_DEVICES", fmt::format("{}", fmt::join(place_.gpus, ",")));
  }
  const auto on_change = [this] { wake(); };
  if (start.launcher.kind == LauncherKind::local) {
    const auto on_forked = [this](pid_t pid) {
      host_.ranks.insert(pid);
      processes_.add(pid);
    };
    group_ = make_local_group(host_.io, std::move(config), fork ? start_.fork_server : nullptr, on_forked, on_change);
  } else {
    const bool crowded = !place_.hosts.empty() && static_cast<int>(place_.slots.size()) < world_size_;
    group_ = make_launched_group(host_.io, std::move(config), place_.hosts, crowded, on_change);
  }
}

void Pool::send(const protocol::Request& request) {
  const bool of_case = std::holds_alternative<protocol::RunRequest>(request) ||
                       std::holds_alternative<protocol::PrepareRequest>(request);
  if (of_case && run().history) sent_lines_ += protocol::encode(request) + '\n';
  group_->send(request);
}

PoolRetired Pool::forget_ranks() {
  PoolRetired out;
  if (!group_) return out;
  out.leftovers = processes_.describe();
  std::ranges::move(group_->unproven(), std::back_inserter(out.leftovers));
  out.exits = group_->exits();
  for (const int pid : group_->children()) host_.ranks.erase(pid);
  group_->reap();
  group_.reset();
  host_.reap_strangers();
  return out;
}

}  // namespace cp_pool
