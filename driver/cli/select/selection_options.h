// The options that select cases.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "driver/cli/select/shard.h"

namespace CLI {  // NOLINT(readability-identifier-naming): of CLI11
class App;
}

namespace cp_pool {

struct SelectionOptions {
  std::vector<std::string> matrices;  // names or files
  std::vector<std::string> filters;   // a case that any of them selects is taken; empty means all
  std::string keywords;               // the expression of -k, which narrows the selection; empty means all
  std::string size;
  std::optional<std::set<std::string>> ids = std::nullopt;          // if set, only cases with these IDs
  Shard shard = {};                                                 // the part of the selected cases to run
  std::optional<std::filesystem::path> shard_times = std::nullopt;  // the events file of an earlier run
  CaseTimes times = {};                                             // the times in that file
};

// Adds --matrix, --size, --filter, -k, --shard and --shard-times, for a command that takes many cases of matrices.
void add_selection(CLI::App& command, SelectionOptions& options);
// Completes the options once they are read: without --matrix it is the matrix quick.
void fill_selection(SelectionOptions& options);

// Adds --matrix and --size, for a command that looks up the ID of a case.
void add_lookup(CLI::App& command, SelectionOptions& options);
// Checks these options once they are read. `argument` names the case. Throws CommandError (usage) if they are given
// although it is no ID.
void check_lookup(const CLI::App& command, const std::string& argument);

// Adds --set, which changes a field of the case: "key=value".
void add_edits(CLI::App& command, std::vector<std::string>& edits);

}  // namespace cp_pool
