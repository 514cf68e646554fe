// Deals out cases to the jobs of a CI: `--shard K/N`.
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

// Reads "2/4". Returns nullopt unless it is one of the N parts.
std::optional<Shard> parse_shard(std::string_view text);

// The durations of cases in an earlier run.
struct CaseTimes {
  std::map<std::string, double> ms;  // by ID
  std::string hash;                  // a hash of `ms`, shown so that jobs with the same times can be recognised
};

// Returns the shard (from 0) of each case. The same list gives the same shards on every machine. Shards cost about the
// same, by a rough estimate or by the durations in `times`. Cases that share their expected results stay together if
// that leaves enough units to deal out.
std::vector<std::size_t> deal_out(const std::vector<const MatrixCase*>& cases, std::size_t shards,
                                  const CaseTimes& times = {});

// Returns a hash of the texts that does not depend on their order.
std::string hash_of_all(std::vector<std::string> texts);

}  // namespace cp_pool
