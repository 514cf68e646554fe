// The cases of one key that wait for a pool, shared by its pools and by all clients. Clients take turns: one case each,
// over those that have cases here and are not held. The cases of a client leave in the order in which they came, except
// that pools side by side take cases of different groups where there are several: cases of a group share expected
// results, which each pool would have to compute again.
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

// A case that is to run: its index in the ledger, which cases it shares expected results with, and whose it is. A run
// of one's own has client 0 alone.
struct QueuedCase {
  std::size_t index = 0;
  std::size_t group = 0;
  int client = 0;
  bool operator==(const QueuedCase&) const = default;
};

class CaseQueue {
 public:
  void add(QueuedCase waiting);
  // A case whose pool was lost before it had started: it is the next one of its client, and the client is next.
  void put_back(QueuedCase waiting);

  // The case that take() would give this pool now.
  [[nodiscard]] std::optional<QueuedCase> peek(int pool) const;
  // Of the client whose turn it is, the first case of a group that no other pool takes its cases from; if there is
  // none, the first case. The group is then this pool's, whichever client's case comes next. nullopt: no case may
  // leave.
  std::optional<QueuedCase> take(int pool);
  // The pool takes no more cases.
  void forget(int pool);

  // The client's cases, those that come later too, stay here until it is called with false.
  void hold(int client, bool held);

  // Empties the queue, held cases too. Returns the indices in order.
  std::vector<std::size_t> take_all();
  // The same for one client, at the cost of its own cases. It is no longer held.
  std::vector<std::size_t> take_all_of(int client);

  // How many cases may leave.
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  // How many may not, since their clients are held.
  [[nodiscard]] std::size_t held_size() const { return held_size_; }

  // How many clients have cases that may leave, and whose turn it is; the queue must not be empty.
  [[nodiscard]] std::size_t clients_in_turn() const { return turns_.size(); }
  [[nodiscard]] int next_client() const { return turns_.front(); }
  // Of how many clients anything is kept: those with cases, and those that are held.
  [[nodiscard]] std::size_t known_clients() const;
  // How many pools have a group.
  [[nodiscard]] std::size_t known_owners() const { return owners_.size(); }

 private:
  struct Place {
    std::int64_t order;
    std::size_t index;
  };
  using Places = std::vector<Place>;
  using Heads = std::map<std::int64_t, std::size_t>;  // the order of a group's first case, and the group
  struct Client {                                     // that has cases here
    std::map<std::size_t, std::deque<Place>> groups;  // those that have cases
    Heads heads;
    std::size_t size = 0;
    std::optional<std::list<int>::iterator> turn;  // its place in turns_, unless it is held
  };

  Client& enter(int number);
  void leave_turns(Client& client);
  [[nodiscard]] Heads::const_iterator choose(const Client& client, int pool) const;
  static void append_places(const Client& client, Places& out);
  static std::vector<std::size_t> indices_in_order(Places places);

  std::map<int, Client> clients_;
  std::list<int> turns_;  // the clients whose cases may leave, the next one first
  std::set<int> held_;
  std::map<std::size_t, int> owners_;  // of a group: the pool that took its last case, which owns no other group
  std::int64_t first_ = 0;
  std::int64_t next_ = 1;
  std::size_t size_ = 0;
  std::size_t held_size_ = 0;
};

}  // namespace cp_pool
