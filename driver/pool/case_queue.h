// The cases of one key that wait for a pool. All pools of the key and all clients share the queue. Clients take turns,
// one case each; a client that has no cases here or is held has no turn. The cases of a client leave in the order in
// which they were added, with one exception: pools that work side by side take cases of different groups if there are
// several. Cases of a group share expected results, and each pool has to compute these anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace cp_pool {

// A waiting case: its index in the ledger, the group of cases that it shares expected results with, and its client. A
// run without a service has client 0 alone.
struct QueuedCase {
  std::size_t index = 0;
  std::size_t group = 0;
  int client = 0;
  bool operator==(const QueuedCase&) const = default;
};

class CaseQueue {
 public:
  void add(QueuedCase waiting);
  // Puts back a case whose pool was lost before the case started. It becomes the next case of its client, and the
  // client is next in turn.
  void put_back(QueuedCase waiting);

  // Returns the case that take() would give this pool now.
  [[nodiscard]] std::optional<QueuedCase> peek(int pool) const;
  // Takes a case of the client whose turn it is: its first case of a group that no other pool takes cases from, or its
  // first case if there is none. From then on the group belongs to this pool, for the cases of all clients. nullopt: no
  // case may leave.
  std::optional<QueuedCase> take(int pool);
  // Called when the pool takes no more cases. Its group belongs to no pool then.
  void forget(int pool) {
    std::erase_if(owners_, [pool](const auto& owner) { return owner.second == pool; });
  }

  // Holds the client's cases, later ones included, until it is called with false. A held case cannot be taken.
  void hold(int client, bool held);

  // Takes all cases of the client, which is no longer held then, and returns their indices in order. The time depends
  // on the number of these cases only.
  std::vector<std::size_t> take_all_of(int client);

  // Number of cases that may leave.
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  // Number of cases that may not leave because their clients are held.
  [[nodiscard]] std::size_t held_size() const { return held_size_; }

  // The number of clients with cases that may leave, and the client whose turn it is; for the latter the queue must not
  // be empty.
  [[nodiscard]] std::size_t clients_in_turn() const { return turns_.size(); }
  [[nodiscard]] int next_client() const { return turns_.front(); }

 private:
  struct Place {
    std::int64_t order;
    std::size_t index;
  };
  using Heads = std::map<std::int64_t, std::size_t>;  // order of a group's first case -> the group
  struct Client {                                     // a client with cases here
    std::map<std::size_t, std::deque<Place>> groups;  // groups with cases
    Heads heads;
    std::size_t size = 0;
    std::optional<std::list<int>::iterator> turn;  // place in turns_; none if the client is held
  };

  Client& enter(int number);
  void leave_turns(Client& client);
  [[nodiscard]] Heads::const_iterator choose(const Client& client, int pool) const;

  std::map<int, Client> clients_;
  std::list<int> turns_;  // clients whose cases may leave, the next one first
  std::set<int> held_;
  std::map<std::size_t, int> owners_;  // group -> the pool that took its last case; a pool owns at most one group
  std::int64_t first_ = 0;
  std::int64_t next_ = 1;
  std::size_t size_ = 0;
  std::size_t held_size_ = 0;
};

}  // namespace cp_pool
