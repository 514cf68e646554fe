// Ranks that a launcher has started (driver/ranks/launcher.h), on this host or on others. The launcher is the
// driver's only process; its stdin and stdout are those of rank 0. The ranks report to the driver through their
// lifelines (driver/ranks/driver_socket.h). If a worker's ranks have no lifelines, the driver knows only the
// launcher's exit status, and the launcher's stderr has the output of all ranks.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <csignal>
#include <iterator>
#include <random>
#include <string_view>
#include <unistd.h>

#include <fmt/format.h>

#include "driver/core/figures.h"
#include "driver/core/rank_environment.h"
#include "driver/os/spawn.h"
#include "driver/ranks/driver_socket.h"
#include "driver/ranks/launcher.h"
#include "driver/ranks/worker_group.h"
#include "worker/protocol/environment.h"
#include "worker/protocol/host_resources.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

// Range of the port on which rank 0 listens for the other ranks. It is below the ports that Linux assigns to outgoing
// connections.
constexpr int kFirstPort = 20000;
constexpr int kLastPort = 29999;

// A rank that has been silent for this long is taken for dead. By then its own host has ended it, if that host still
// runs (worker/lifeline.h).
constexpr std::chrono::seconds kSilenceLimit{10};

// A rank whose last beat is older than this is late. Ranks send one beat per second.
constexpr std::chrono::milliseconds kLateBeat{1500};

// The name of the Slurm step, by which kill() finds it.
std::string step_name(const std::string& tag) {
  return "cp-pool-" + tag;
}

class LaunchedGroup : public WorkerGroup {
 public:
  LaunchedGroup(asio::io_context& io, Config config, std::vector<HostShare> hosts, bool crowded,
                std::function<void()> on_change)
      : WorkerGroup(io, std::move(config), std::move(on_change)),
        hosts_(std::move(hosts)),
        crowded_(crowded),
        launcher_(-1, this->config().world_size) {}

  ~LaunchedGroup() override {
    kill();
    lifelines_.reset();
    await_children();
  }

  void spawn() override {
    open_logs();
    if (config().logs.dir) launcher_.log = {*config().logs.dir / "launcher.stderr.log", config().logs.on_error};
    for (int rank = 0; rank < config().world_size; ++rank) add_rank();

    open_lifelines();

    // Workers without lifelines connect to rank 0 on this host. Without an allocation, rank 0 is assumed to run here.
    const std::vector<std::string> addresses = protocol::own_addresses();
    const bool may_leave_host = run().launcher.kind != LauncherKind::torchrun && !addresses.empty();
    const std::string host = !hosts_.empty() ? hosts_.front().host : may_leave_host ? addresses.front() : "127.0.0.1";
    // If the port is in use, the pool fails to start, and the next pool draws another one.
    std::random_device random;
    const int port = std::uniform_int_distribution{kFirstPort, kLastPort}(random);
    protocol::RankEnvironment of_ranks;
    of_ranks.master_addr = host;
    of_ranks.master_port = static_cast<std::uint16_t>(port);
    Variables added = variables_of(of_ranks);
    const std::vector<std::string>& of_a_rank = rank_variables();
    std::erase_if(added, [&](const auto& variable) { return std::ranges::count(of_a_rank, variable.first) > 0; });
    // Makes rank 0, and not torchrun, serve the control plane at the given port.
    if (run().launcher.kind == LauncherKind::torchrun) added.emplace_back("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1");
    std::ranges::copy(lifelines_->variables(), std::back_inserter(added));
    LaunchPlan launch{
        .world_size = config().world_size,
        .hosts = hosts_,
        .rendezvous = fmt::format("{}:{}", host, port),
        .worker = run().device == "cuda" ? restrict_gpus(hosts_, run().worker_command) : run().worker_command,
        .name = step_name(config().tag),
        .as_root = ::geteuid() == 0};
    for (const auto& [name, value] : added) launch.variables.push_back(name);
    for (std::string& name : inherited_variables(process_environment())) {
      if (std::ranges::count(launch.variables, name) == 0) launch.variables.push_back(std::move(name));
    }
    std::vector<std::string> words = launch_words(run().launcher, launch);
    // Only when needed, because Slurm may restrict a step that overcommits to one core of each node.
    if (run().launcher.kind == LauncherKind::srun && crowded_) words.insert(words.begin() + 1, "--overcommit");

    Pipe in = make_pipe();
    Pipe out = make_pipe();
    Pipe err = make_pipe();
    SpawnedProcess process = cp_pool::spawn({.argv = words,
                                             .env = added,
                                             .without = rank_variables(),
                                             .stdin_fd = in.read.get(),
                                             .stdout_fd = out.write.get(),
                                             .stderr_fd = err.write.get(),
                                             .process = process_environment()});
    launcher_.pid = process.pid;
    watch(launcher_, std::move(err.read), std::move(process.pidfd), std::nullopt, name_of(run().launcher));
    watch_stdio(std::move(in.write), std::move(out.read));
  }

  [[nodiscard]] std::vector<Leftover> unproven() const override {
    std::vector<Leftover> out;
    for (const int rank : connected_ranks()) {
      const Rank& left = ranks()[static_cast<std::size_t>(rank)];
      const bool silent = lifelines_->ranks()[static_cast<std::size_t>(rank)].silent;
      out.push_back({.pid = left.pid,
                     .state = silent ? "silent" : "connected",
                     .host = left.host.empty() ? own_host_ : left.host});
    }
    return out;
  }

  std::vector<StderrTail> tails() override {
    const bool by_rank = has_lifelines();
    std::vector<StderrTail> out;
    if (by_rank) out = WorkerGroup::tails();
    StderrTail said = launcher_.tail.tail();
    if (by_rank && said.text.empty()) return out;
    said.of = name_of(run().launcher);
    said.fenced = said.fenced || by_rank;
    out.push_back(std::move(said));
    return out;
  }

  std::string last_words(const RankEnd& end) override {
    if (end.rank) return WorkerGroup::last_words(end);
    // Lines without letters and digits are the rules that mpirun ('-') and torchrun ('=') draw around their messages.
    const auto says_something = [](std::string_view line) {
      return std::ranges::any_of(line, [](unsigned char c) { return std::isalnum(c) != 0; });
    };
    const std::string text = launcher_.tail.tail().text;
    const std::vector<std::string_view> lines = protocol::lines_of(text);
    const auto last = std::ranges::find_if(lines.rbegin(), lines.rend(), says_something);
    return last == lines.rend() ? "" : std::string(*last);
  }

  // Without lifelines the launcher is signalled: mpirun and srun pass the signal on to every rank, but torchrun would
  // die of it.
  void ask_for_stacks() override {
    if (has_lifelines()) {
      for (const int rank : connected_ranks()) lifelines_->show_stack(rank);
    } else if (run().launcher.kind == LauncherKind::mpirun || run().launcher.kind == LauncherKind::srun) {
      signal_launcher(SIGUSR2);
    }
  }

  void terminate() override {
    signal_launcher(SIGTERM);
    signal_launcher(SIGCONT);
  }

  // Ends the ranks before the launcher, because ranks go on when their launcher is killed.
  void kill() override {
    if (launcher_.pid <= 0) return;
    if (!all_ended() && run().launcher.kind == LauncherKind::srun) {
      // Slurm reaches ranks that react to nothing else and that no srun waits for any more.
      const std::string command = fmt::format(
          "squeue --steps --noheader --name={} --format=%i | xargs -r scancel --signal=KILL", step_name(config().tag));
      try {
        cp_pool::spawn({.argv = {"sh", "-c", command}, .process = process_environment()});
      } catch (const SpawnError&) {  // ranks that are left are named in pool_retired
      }
    }
    if (lifelines_) lifelines_->end_all();
    ::kill(-launcher_.pid, SIGKILL);
  }

  void reap() override {
    lifelines_.reset();
    WorkerGroup::reap();
  }

 protected:
  [[nodiscard]] std::vector<Process*> child_processes() override { return {&launcher_}; }

  void add_to(RankFacts& facts) const override {
    facts.rank0_ended = launcher_.exit || (lifelines_ && lifelines_->ranks().front().closed);
    facts.all_ended = all_ended();
    facts.drained = drained();
    if (!has_lifelines()) facts.tails_complete = launcher_.tail.complete();
    facts.die_with_their_processes = false;
    facts.silent = silent_ranks();
    facts.left = ranks_left();
  }

  std::vector<StderrBuffer*> streams() override {
    std::vector<StderrBuffer*> out = WorkerGroup::streams();
    out.push_back(&launcher_.tail);
    return out;
  }

 private:
  // RankFacts::silent
  [[nodiscard]] std::string silent_ranks() const {
    std::string out;
    for (const int rank : connected_ranks()) {
      if (!lifelines_->ranks()[static_cast<std::size_t>(rank)].silent) continue;
      out += (out.empty() ? "" : ", ") + name_of_rank(rank);
    }
    return out.empty() ? out : fmt::format("nothing has been heard of {} for more than 5 s", out);
  }

  // RankFacts::left
  // If a host is cut off, the launcher may notice before the driver takes the host's ranks for silent.
  [[nodiscard]] std::string ranks_left() const {
    if (ends().empty()) return "";
    std::vector<int> quiet;
    std::vector<int> talking;
    Clock::duration shortest = Clock::duration::max();
    for (const int rank : connected_ranks()) {
      const Clock::duration silence = lifelines_->silence_of(rank);
      (silence > kLateBeat ? quiet : talking).push_back(rank);
      if (silence > kLateBeat) shortest = std::min(shortest, silence);
    }
    std::string out;
    if (!quiet.empty()) {
      out = fmt::format("nothing has been heard of {} for {:.1f} s", names_of_ranks(quiet),
                        std::chrono::duration<double>(shortest).count());
    }
    // If the end of a rank is known, the ranks that go on are not mentioned.
    const bool launcher_alone = std::ranges::none_of(ends(), [](const RankEnd& end) { return end.rank.has_value(); });
    if (launcher_alone && !talking.empty()) {
      out += fmt::format("{}{} {} still connected", out.empty() ? "" : "; ", names_of_ranks(talking),
                         talking.size() == 1 ? "is" : "are");
    }
    return out;
  }

  void open_lifelines() {
    own_host_ = protocol::host_name();
    DriverSocket::Functions functions;
    functions.on_joined = [this](int rank, const lifeline::Joined& joined) { on_joined(rank, joined); };
    functions.on_silent = [this](int /*rank*/) { changed(); };
    functions.on_long_silence = [this](int rank) {
      note_end_once({rank, name_of_rank(rank),
                     fmt::format("nothing has been heard of it for {} s", kSilenceLimit.count()), std::nullopt});
    };
    functions.on_heard_again = functions.on_silent;
    functions.on_closed = [this](int rank, const std::string& why) { on_closed(rank, why); };
    functions.on_stderr = [this](int rank, std::string_view bytes) { take_stderr(rank_at(rank), bytes); };
    functions.on_stderr_end = [this](int rank) { end_stderr(rank_at(rank)); };
    lifelines_ = std::make_unique<DriverSocket>(
        io(), DriverSocket::Config{.world_size = config().world_size, .silence = kSilenceLimit / 2},
        std::move(functions));
  }

  void on_joined(int rank, const lifeline::Joined& joined) {
    Rank& known = rank_at(rank);
    known.pid = joined.pid;
    if (joined.host != own_host_) known.host = joined.host;
    changed();
  }

  // A rank that ends by itself has sent its exit code before. About a rank that was killed, the launcher may know more.
  void on_closed(int rank, const std::string& why) {
    const bool closed = why == "it closed the connection";
    RankEnd end{
        rank, name_of_rank(rank),
        closed ? "its connection to cp-pool was closed" : fmt::format("its connection to cp-pool broke: {}", why),
        std::nullopt};
    if (const auto code = lifelines_->ranks()[static_cast<std::size_t>(rank)].ending) {
      end.status = ExitStatus{false, *code};
      end.how = describe(*end.status);
      rank_at(rank).exit = end.status;
    }
    note_end_once(std::move(end));
  }

  void note_end_once(RankEnd end) {
    if (std::ranges::find(ends(), end.rank, &RankEnd::rank) != ends().end()) return changed();
    note_end(std::move(end));
  }

  [[nodiscard]] bool has_lifelines() const {
    return lifelines_ &&
           std::ranges::any_of(lifelines_->ranks(), [](const auto& rank) { return rank.joined.has_value(); });
  }

  [[nodiscard]] std::vector<int> connected_ranks() const {
    std::vector<int> out;
    if (!lifelines_) return out;
    for (int rank = 0; rank < config().world_size; ++rank) {
      if (lifelines_->ranks()[static_cast<std::size_t>(rank)].connected) out.push_back(rank);
    }
    return out;
  }

  [[nodiscard]] std::string name_of_rank(int rank) const {
    const std::string& host = ranks()[static_cast<std::size_t>(rank)].host;
    return host.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} on {}", rank, host);
  }

  // Returns "ranks 0-3 and ranks 4-7 on node2" and the like.
  [[nodiscard]] std::string names_of_ranks(const std::vector<int>& numbers) const {
    std::vector<std::pair<std::string, std::vector<int>>>
        hosts;  // host and its ranks, in the order of their first rank
    for (const int rank : numbers) {
      const std::string& host = ranks()[static_cast<std::size_t>(rank)].host;
      auto known = std::ranges::find(hosts, host, [](const auto& entry) { return entry.first; });
      if (known == hosts.end()) known = hosts.insert(hosts.end(), {host, {}});
      known->second.push_back(rank);
    }
    std::string out;
    for (const auto& [host, of_host] : hosts) {
      out += fmt::format("{}{}{}", out.empty() ? "" : " and ", name_ranks(of_host), host.empty() ? "" : " on " + host);
    }
    return out;
  }

  [[nodiscard]] bool all_ended() const { return (launcher_.pid <= 0 || launcher_.exit) && connected_ranks().empty(); }

  // Waits for the launcher's exit even if a rank's end is known, because the launcher may say how the rank ended.
  [[nodiscard]] bool drained() const {
    if (!launcher_.exit) return ends().empty();
    return stdout_closed() && launcher_.tail.closed() && std::ranges::all_of(ends(), [this](const RankEnd& end) {
             return !end.rank || ranks()[static_cast<std::size_t>(*end.rank)].tail.closed();
           });
  }

  void signal_launcher(int signal) const {
    if (launcher_.pid > 0 && !launcher_.exit) ::kill(launcher_.pid, signal);
  }

  std::vector<HostShare> hosts_;
  bool crowded_;
  std::unique_ptr<DriverSocket> lifelines_;
  std::string own_host_;
  Process launcher_;
};

}  // namespace

std::unique_ptr<WorkerGroup> make_launched_group(asio::io_context& io, WorkerGroup::Config config,
                                                 std::vector<HostShare> hosts, bool crowded,
                                                 std::function<void()> on_change) {
  return std::make_unique<LaunchedGroup>(io, std::move(config), std::move(hosts), crowded, std::move(on_change));
}

}  // namespace cp_pool
