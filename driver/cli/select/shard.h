// Which cases are those of one job of a CI: `--shard K/N`.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cases/matrix.h"

namespace cp_pool {

// One of `count` parts of the selected cases.
struct Shard {
  std::size_t index = 1;  // 1 .. count
  std::size_t count = 1;
};

// "2/4"; nullopt for anything that is no part of a whole.
std::optional<Shard> parse_shard(std::string_view text);

// How long cases took in an earlier run.
struct CaseTimes {
  std::map<std::string, double> ms;  // by ID
  std::string hash;                  // of these: jobs that deal out by the same times show the same
};

// The shard (from 0) of each case. The same list gives the same shards everywhere. They are alike in what they cost, by
// a rough estimate or, where it is known, by the time that they took; and cases that share their expected results stay
// together where that leaves enough to deal out.
std::vector<std::size_t> deal_out(const std::vector<const MatrixCase*>& cases, std::size_t shards,
                                  const CaseTimes& times = {});

}  // namespace cp_pool
