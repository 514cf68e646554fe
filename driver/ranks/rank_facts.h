// What the driver knows of the ranks of a pool and of their fork server: the facts on which a PoolMachine
// (driver/pool/pool_machine.h) decides.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "driver/os/spawn.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

// The end of a rank, or of the launcher that started the ranks.
struct RankEnd {
  std::optional<int> rank;           // nullopt: the launcher
  std::string who;                   // "rank 1", "rank 1 on node2", "mpirun"
  std::string how;                   // "exit 3"
  std::optional<ExitStatus> status;  // none: unknown
};

// A line of rank 0 that begins with the sentinel but is not a valid message.
struct ProtocolBreak {
  std::string detail;
};
using Incoming = std::variant<protocol::Event, ProtocolBreak>;
// Returns the message if it is of this type, else nullptr.
template <typename Message>
const Message* message_in(const Incoming& incoming) {
  const auto* const event = std::get_if<protocol::Event>(&incoming);
  return event == nullptr ? nullptr : std::get_if<Message>(event);
}

// What is known of a pool's ranks. The defaults are the facts of a pool that has none.
struct RankFacts {
  std::vector<int> pids = {};          // as in PoolSpawned
  bool forking = false;                // ranks are still being forked, one after another
  bool fork_failed = false;            // before all ranks were forked; those that were forked still exist
  std::span<const RankEnd> ends = {};  // in the order in which the ranks ended
  bool all_ended = true;               // no rank and no launcher is left, as far as the driver can see
  bool rank0_ended = false;
  bool drained = true;         // nothing more can come from the ranks that have ended
  bool tails_complete = true;  // the stderr of the current case has been read to its end
  bool stdin_broken = false;   // the pipes are those of rank 0
  bool stdin_pending = false;
  bool stdout_closed = false;
  // Whether the ranks end when the driver's own processes are killed. If not, terminate() must come first.
  bool die_with_their_processes = true;
  // Names the ranks that have been silent for too long, and for how long: their host may be down or cut off.
  std::string silent = {};
  // After a rank or the launcher has ended: the ranks that have not, if that may explain the end, as in "nothing has
  // been heard of rank 1 on node2 for 2.3 s".
  std::string left = {};
  std::string_view last_chatter = {};  // the last non-blank line of rank 0's stdout that is no message
  // The last such line of the current case that has the sentinel elsewhere than at its beginning, or without the blank
  // after it.
  std::string_view misplaced_sentinel = {};
};

// What is known of the process that ranks are forked from (fork_server.h).
struct ServerFacts {
  enum class State { none, unused, starting, ready, useless };
  State state = State::none;
  // Why no rank can start, whether it is forked or not; empty if ranks can be started one by one.
  std::string no_rank_starts = {};
  std::string last_words = {};
};

}  // namespace cp_pool
