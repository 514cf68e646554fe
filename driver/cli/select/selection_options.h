// The options that say which cases a command is about.
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
  std::vector<std::string> filters;   // the union of what they select; empty = all
  std::string keywords;               // of these only what -k selects; empty = all
  std::string size;
  std::optional<std::set<std::string>> ids = std::nullopt;          // if set, only cases with these IDs
  Shard shard = {};                                                 // the part of the selected cases to run
  std::optional<std::filesystem::path> shard_times = std::nullopt;  // an earlier run's events file ..
  CaseTimes times = {};                                             // .. and what it says of times
};

// --matrix, --size, --filter, -k, --shard and --shard-times, for a command that takes many cases of matrices.
void add_selection(CLI::App& command, SelectionOptions& options);
// Once they are read: without --matrix it is the matrix quick.
void fill_selection(SelectionOptions& options);

// --matrix and --size, for a command that looks up the ID of a case.
void add_lookup(CLI::App& command, SelectionOptions& options);
// Once they are read, with the argument that is an ID or not. Throws CommandError (usage) if they are given without
// one.
void check_lookup(const CLI::App& command, const std::string& argument);

// --set, each a change of a field of the case: "key=value".
void add_edits(CLI::App& command, std::vector<std::string>& edits);

}  // namespace cp_pool
