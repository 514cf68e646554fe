// Ranks that a launcher has started (driver/ranks/launcher.h), on this host or on others. The launcher is the
// driver's only process; its stdin and stdout are those of rank 0. The ranks report to the driver through their
// lifelines (driver/ranks/driver_socket.h). If a worker's ranks have no lifelines, the driver knows only the
// launcher's exit status, and the launcher's stderr has the output of all ranks.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <asio/io_context.hpp>

#include "driver/os/wakeup.h"
#include "driver/ranks/driver_socket.h"
#include "driver/ranks/pipes.h"
#include "driver/ranks/worker_group.h"

namespace cp_pool {

class LaunchedGroup : public WorkerGroup {
 public:
  struct Config : WorkerGroup::Config {
    std::vector<HostShare> hosts = {};  // empty: the launcher chooses the hosts
    bool crowded = false;               // the hosts have fewer slots than the pool has ranks
  };

  LaunchedGroup(asio::io_context& io, Config config, std::function<void()> on_change);
  ~LaunchedGroup() override;  // kills and reaps the launcher, waiting 1 s at most

  void spawn() override;

  [[nodiscard]] std::vector<int> children() const override {
    return launcher_ > 0 ? std::vector<int>{launcher_} : std::vector<int>{};
  }
  [[nodiscard]] std::vector<Leftover> unproven() const override;

  std::vector<StderrTail> tails() override;
  std::string last_words(const RankEnd& end) override;

  void ask_for_stacks() override;
  void terminate() override;
  void kill() override;
  void reap() override;

 protected:
  void add_to(RankFacts& facts) const override;
  std::vector<StderrBuffer*> streams() override;

 private:
  [[nodiscard]] std::string silent_ranks() const;  // RankFacts::silent
  [[nodiscard]] std::string ranks_left() const;    // RankFacts::left
  [[nodiscard]] std::string master_host() const;
  void open_lifelines();
  void on_joined(int rank, const lifeline::Joined& joined);
  void on_closed(int rank, const std::string& why);
  void give_up_if_silent(int rank);
  void note_end_once(RankEnd end);
  [[nodiscard]] bool has_lifelines() const;
  [[nodiscard]] std::vector<int> connected_ranks() const;
  [[nodiscard]] std::string name_of_rank(int rank) const;
  // Returns "ranks 0-3 and ranks 4-7 on node2" and the like.
  [[nodiscard]] std::string names_of_ranks(const std::vector<int>& numbers) const;
  [[nodiscard]] bool all_ended() const { return (launcher_ <= 0 || exit_) && connected_ranks().empty(); }
  [[nodiscard]] bool drained() const;
  void cancel_step() const;
  void on_exit();
  void signal_launcher(int signal) const;

  Config config_;
  std::unique_ptr<DriverSocket> lifelines_;
  std::string own_host_;
  pid_t launcher_ = -1;
  std::optional<ExitStatus> exit_;  // of the launcher; none while it runs
  StderrBuffer launcher_tail_;
  LogFile launcher_log_;
  Watch watch_;
  std::map<int, Alarm> silences_;  // when silent ranks are given up, by rank
};

}  // namespace cp_pool
