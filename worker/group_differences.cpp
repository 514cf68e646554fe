#include "worker/group_differences.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cp_pool {

namespace {

// Operations of one rank that are counted together, in their order.
struct Row {
  const GroupHistory* rank = nullptr;
  std::vector<const GroupOperation*> operations = {};
};

bool is_message(const GroupOperation& one) {
  return one.name == "send" || one.name == "recv";
}

// The messages of a group that the rank sends to or receives from a peer.
Row messages(const GroupHistory& rank, const std::string& name, const std::string& group, int peer) {
  Row row{&rank};
  for (const GroupOperation& one : rank.begun) {
    if (one.name == name && one.group == group && one.peer == peer) row.operations.push_back(&one);
  }
  return row;
}

Row collectives(const GroupHistory& rank, const std::string& group, const std::vector<int>& members) {
  Row row{&rank};
  for (const GroupOperation& one : rank.begun) {
    if (!is_message(one) && one.group == group && one.members == members) row.operations.push_back(&one);
  }
  return row;
}

std::string named(const GroupHistory& rank) {
  return fmt::format("rank {}{}", rank.rank, rank.idle ? ", which has no tokens," : "");
}

const char* peer_of(const GroupOperation& one) {
  if (!is_message(one)) return "with root";
  return one.name == "send" ? "to rank" : "from rank";
}

// "all_gather of float32 [4, 16]", and the other rank.
std::string described(const GroupOperation& one, bool with_peer) {
  std::string text = one.name;
  if (!one.tensor.empty()) text += " of " + one.tensor;
  if (with_peer && one.peer >= 0) text += fmt::format(", {} {}", peer_of(one), one.peer);
  return text;
}

// Whether all ranks of the collective give equally much.
bool is_even(const GroupOperation& one) {
  return !one.name.starts_with("all_to_all");
}

class Comparison {
 public:
  Comparison(const std::vector<GroupHistory>& histories, bool waited)
      : by_rank_(sorted_by_rank(histories)), waited_(waited) {}

  std::string text() {
    for_each_row("recv", [this](const GroupHistory& to, const GroupOperation& one) { compare_received(to, one); });
    for_each_row("", [this](const GroupHistory& /*rank*/, const GroupOperation& one) { compare_collectives(one); });
    for_each_row("send", [this](const GroupHistory& from, const GroupOperation& one) { compare_sent(from, one); });
    return fmt::format("{}", fmt::join(found_, "; "));
  }

 private:
  // Calls a function for the first operation of each row of messages of this name; of collectives, if it is empty.
  template <typename Function>
  void for_each_row(const std::string& name, const Function& function) {
    std::set<std::tuple<std::string, std::vector<int>, int, int>> seen;
    for (const GroupHistory* rank : by_rank_) {
      for (const GroupOperation& one : rank->begun) {
        if (name.empty() ? is_message(one) : one.name != name) continue;
        const bool first = name.empty() ? seen.emplace(one.group, one.members, -1, -1).second
                                        : seen.emplace(one.group, one.members, rank->rank, one.peer).second;
        if (first) function(*rank, one);
      }
    }
  }

  [[nodiscard]] const GroupHistory* find(int rank) const {
    const auto found = std::ranges::find(by_rank_, rank, &GroupHistory::rank);
    return found == by_rank_.end() ? nullptr : *found;
  }

  void compare_received(const GroupHistory& to, const GroupOperation& like) {
    const GroupHistory* const from = find(like.peer);
    if (from == nullptr) return;
    const Row received = messages(to, "recv", like.group, from->rank);
    const Row sent = messages(*from, "send", like.group, to.rank);
    for (std::size_t i = 0; i < received.operations.size(); ++i) {
      if (i == sent.operations.size()) {
        if (!waited_) return;
        found_.push_back(fmt::format("{} {} message #{} to rank {}, which waits for it", named(*from),
                                     from->left ? "left without sending" : "has not sent", i + 1, to.rank));
        return;
      }
      if (sent.operations[i]->bytes == received.operations[i]->bytes) continue;
      found_.push_back(fmt::format("rank {} sends message #{} to rank {} as {}, and there it is received as {}",
                                   from->rank, i + 1, to.rank, sent.operations[i]->tensor,
                                   received.operations[i]->tensor));
      return;
    }
  }

  void compare_sent(const GroupHistory& from, const GroupOperation& like) {
    const GroupHistory* const to = find(like.peer);
    // A rank that receives from any rank may have received it.
    if (to == nullptr || !waited_ || !messages(*to, "recv", like.group, -1).operations.empty()) return;
    const std::size_t received = messages(*to, "recv", like.group, from.rank).operations.size();
    if (received >= messages(from, "send", like.group, to->rank).operations.size()) return;
    found_.push_back(fmt::format("{} {} message #{} from rank {}", named(*to),
                                 to->left ? "left without receiving" : "has not received", received + 1, from.rank));
  }

  void compare_collectives(const GroupOperation& like) {
    std::vector<Row> rows;
    for (const GroupHistory* rank : by_rank_) {
      if (std::ranges::count(like.members, rank->rank) > 0)
        rows.push_back(collectives(*rank, like.group, like.members));
    }
    for (std::size_t i = 0;; ++i) {
      const auto behind =
          std::ranges::stable_partition(rows, [i](const Row& row) { return row.operations.size() > i; });
      if (behind.begin() == rows.begin()) return;
      const std::vector<Row> entered(rows.begin(), behind.begin());
      if (found_difference(entered, i)) return;
      if (behind.empty()) continue;
      if (waited_) found_.push_back(not_entered(entered, {behind.begin(), behind.end()}, i));
      return;
    }
  }

  // Whether these ranks have entered different collectives.
  bool found_difference(const std::vector<Row>& entered, std::size_t i) {
    const GroupOperation& one = *entered.front().operations[i];
    for (const Row& row : entered) {
      const GroupOperation& other = *row.operations[i];
      if (other.name == one.name && other.peer == one.peer && (other.bytes == one.bytes || !is_even(one))) continue;
      const bool roots = other.peer != one.peer;
      found_.push_back(fmt::format("as collective #{} of {}, rank {} entered {}, and rank {} {}", i + 1, group_of(one),
                                   entered.front().rank->rank, described(one, roots), row.rank->rank,
                                   described(other, roots)));
      return true;
    }
    return false;
  }

  [[nodiscard]] std::string not_entered(const std::vector<Row>& entered, const std::vector<Row>& behind,
                                        std::size_t i) const {
    const GroupOperation& one = *entered.front().operations[i];
    std::vector<std::string> names;
    names.reserve(behind.size());
    for (const Row& row : behind) names.push_back(named(*row.rank));
    const bool left = std::ranges::all_of(behind, [](const Row& row) { return row.rank->left; });
    const bool wait = std::ranges::all_of(entered, [i](const Row& row) { return row.operations.size() == i + 1; });
    const char* const have = names.size() == 1 ? "has not entered" : "have not entered";
    const std::string others = entered.size() == 1 ? fmt::format("rank {}", entered.front().rank->rank) : "the others";
    const char* const are = !wait ? "entered" : entered.size() == 1 ? "waits in" : "wait in";
    return fmt::format("{} {} {} #{}{}; {} {} it", fmt::join(names, " and "), left ? "left without entering" : have,
                       one.name, i + 1, one.members.size() < by_rank_.size() ? " of " + group_of(one) : "", others,
                       are);
  }

  static std::string group_of(const GroupOperation& one) {
    return fmt::format("ranks {}", fmt::join(one.members, ", "));
  }

  std::vector<const GroupHistory*> by_rank_;
  bool waited_;
  std::vector<std::string> found_;
};

}  // namespace

std::string group_differences(const std::vector<GroupHistory>& histories, bool waited) {
  return Comparison(histories, waited).text();
}

std::string last_group_operation(const GroupHistory& history) {
  if (history.begun.empty()) return {};
  const GroupOperation& last = history.begun.back();
  const auto row = is_message(last) ? messages(history, last.name, last.group, last.peer)
                                    : collectives(history, last.group, last.members);
  std::string text = fmt::format("{} #{}", last.name, row.operations.size());
  text += described(last, true).substr(last.name.size());
  if (!is_message(last) && !last.members.empty()) text += fmt::format(", on ranks {}", fmt::join(last.members, ", "));
  return text;
}

bool Arrivals::any_declined() const {
  return std::ranges::any_of(arrived_, [](const CaseArrived& arrived) { return !arrived.declined.empty(); });
}

std::string Arrivals::difference() const {
  struct Seen {
    int rank = 0;
    std::int64_t operations = 0;
  };
  const std::vector<const CaseArrived*> by_rank = sorted_by_rank(arrived_);
  std::map<std::pair<std::string, int>, Seen> first;  // keyed by the group's words and first rank
  const auto place = [](const CaseArrived& arrived) {
    return arrived.declined.empty() ? "ran the case" : "declined the case in " + arrived.declined;
  };
  for (const CaseArrived* arrived : by_rank) {
    if (arrived->declined != by_rank.front()->declined) {
      return fmt::format("rank {} {}, rank {} {}", arrived->rank, place(*arrived), by_rank.front()->rank,
                         place(*by_rank.front()));
    }
    for (const BegunInGroup& begun : arrived->begun) {
      const Seen own{arrived->rank, begun.operations};
      const Seen& seen = first.try_emplace({begun.group, begun.first_rank}, own).first->second;
      if (seen.operations == own.operations) continue;
      return fmt::format("rank {} has begun {} operations{}, rank {} has begun {}", own.rank, own.operations,
                         begun.group, seen.rank, seen.operations);
    }
  }
  return "";
}

}  // namespace cp_pool
