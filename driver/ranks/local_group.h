// Ranks that are processes of the driver: spawned one by one, or forked by a fork server. Each has a stderr pipe and a
// process group of its own.
#pragma once

#include <csignal>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include <asio/io_context.hpp>

#include "driver/os/spawn.h"
#include "driver/ranks/pipes.h"
#include "driver/ranks/worker_group.h"
#include "worker/protocol/environment.h"

namespace cp_pool {

class ForkServer;

class LocalGroup : public WorkerGroup {
 public:
  struct Config : WorkerGroup::Config {
    ForkServer* fork_server = nullptr;          // forks the ranks; nullptr: each rank is spawned on its own
    std::function<void(pid_t)> on_forked = {};  // called for each forked rank before anybody may reap it
  };

  LocalGroup(asio::io_context& io, Config config, std::function<void()> on_change);
  ~LocalGroup() override;  // kills and reaps the ranks that are left, waiting 1 s at most

  // With a fork server this returns at once, while ranks are still being forked.
  void spawn() override;
  // Forks no more ranks. The rank that was ordered last may still come.
  void stop_forking() override { to_fork_.clear(); }

  [[nodiscard]] std::vector<int> children() const override { return pids(); }

  void ask_for_stacks() override;
  void terminate() override;
  void kill() override { signal_groups(SIGKILL); }
  void reap() override;

 protected:
  void add_to(RankFacts& facts) const override;

 private:
  // A rank that is about to be started: its environment and the pipes to it.
  struct Start {
    Variables variables;
    Pipe in;
    Pipe out;
    Pipe err;
    UniqueFd master;  // only for rank 0: the socket that it listens on for the other ranks
  };
  [[nodiscard]] Start prepare(int index, ListeningSocket& master) const;
  void spawn_rank(Start start);
  void fork_next();
  void take_forked(Start& start, pid_t pid);
  void connect(pid_t pid, Start& start, UniqueFd pidfd);
  void on_exit(Rank& rank);
  // Signals every rank's process group, even if the rank has exited.
  void signal_groups(int signal);

  Config config_;
  std::string token_ = protocol::random_token();  // of the pool
  std::deque<Start> to_fork_;                     // by rank
  bool forking_ = false;
  bool fork_failed_ = false;
  // Expired for answers of the fork server after this object is gone.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cp_pool
