#include "cp_core/comm/local/local_groups.h"

namespace cp_pool {
namespace {

// The groups of each of `size` ranks when the ranks are cut into `groups` strided groups.
std::vector<CpGroups> groups_of_ranks(int size, int groups, const LocalOptions& options) {
  std::vector<CpGroups> out(static_cast<std::size_t>(size));
  const auto strided = groups == 1 ? std::make_shared<LocalStrided>(size, options) : nullptr;
  // Makes a group for all its members, when `rank` is its first member.
  const auto make_group = [&](int rank, const std::vector<int>& ranks,
                              std::shared_ptr<Communicator> CpGroups::* group) {
    if (ranks.empty() || ranks.front() != rank) return;
    const auto members =
        connect_local(static_cast<int>(ranks.size()), group == &CpGroups::cp ? strided : nullptr, options);
    for (std::size_t i = 0; i < ranks.size(); ++i) out[static_cast<std::size_t>(ranks[i])].*group = members[i];
  };
  for (int rank = 0; rank < size; ++rank) {
    const GroupRanks ranks = group_ranks(rank, size, groups);
    make_group(rank, ranks.cp, &CpGroups::cp);
    make_group(rank, ranks.inner, &CpGroups::inner);
    make_group(rank, ranks.outer, &CpGroups::outer);
  }
  return out;
}

}  // namespace

CpGroups LocalStrided::of_rank(int rank, int groups) {
  const std::lock_guard lock(mutex_);
  if (aborted_) throw CommError(CommError::Kind::aborted, "the communicator was aborted");
  auto found = made_.find(groups);
  if (found == made_.end()) found = made_.emplace(groups, groups_of_ranks(size_, groups, options_)).first;
  return found->second[static_cast<std::size_t>(rank)];
}

void LocalStrided::abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  for (const auto& [groups, of_ranks] : made_) {
    for (const CpGroups& of_rank : of_ranks) {
      for (const auto& group : {of_rank.cp, of_rank.inner, of_rank.outer}) {
        if (group) group->abort();
      }
    }
  }
}

std::vector<CpGroups> make_local_groups(int size, const LocalOptions& options) {
  return groups_of_ranks(size, 1, options);
}

}  // namespace cp_pool
