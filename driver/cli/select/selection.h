// Selects cases by --matrix, --size, --filter and other options.
#pragma once

#include "cases/matrix.h"
#include "driver/cli/output_check.h"
#include "driver/cli/select/shard.h"
#include "driver/core/mapped.h"

namespace cp_pool {

struct SelectionOptions {
  std::vector<std::string> matrices;      // names or files
  std::vector<std::string> filters = {};  // a case that any of them selects is taken; empty means all
  std::string keywords = {};              // the expression of -k, which narrows the selection; empty means all
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

struct SelectedCase {
  MatrixCase matrix_case;
  std::string matrix;  // the argument that named its matrix
};

struct Selection {
  std::vector<SelectedCase> cases;        // in the order of the matrices
  std::vector<std::string> idle_filters;  // filters that select no case: "the filter 'x'", "-k 'x'"
  std::set<std::string> unknown_ids;      // members of SelectionOptions::ids that no matrix has
  std::string title;                      // the names of the matrices: "te-flash, te-fused"
  std::optional<ShardOfRun> shard;        // if the cases are one of several shards
};

// Selects cases; without filters and IDs, all but the optional ones. Throws CaseError for a bad matrix, case or filter.
Selection select_cases(const SelectionOptions& options);
// The same, for uses that need not keep the cases, of which there may be a million: gives them to `take` instead of
// returning them. Leaves the shard out of account.
using TakeSelectedCase = std::function<void(SelectedCase&& selected)>;
Selection select_cases(const SelectionOptions& options, const TakeSelectedCase& take);

// Returns what a run schedules for the case. `program` is argv[0], for the command that reruns it.
Item item_of(const SelectedCase& selected, const std::string& program, const ExecutionOptions& execution);

// Returns the files of the matrices. Throws CommandError (bad_input) for a matrix that is not shipped.
std::vector<InputFile> matrix_inputs(const SelectionOptions& options);  // all shipped ones if none is named

// Returns the error for options that select no case: "no case of quick is selected", and the other shipped matrices
// that have selected cases.
std::string nothing_selected(const SelectionOptions& options);

// The order in which cases run: `cp-pool run --order`.
struct Order {
  enum class Kind { listed, reverse, shuffle, history };
  std::string text = "listed";  // as given
  Kind kind = Kind::listed;
  std::optional<std::uint64_t> seed = std::nullopt;  // of a shuffle; nullopt means a new one each time
  std::filesystem::path events = {};  // of a history: the events file of an earlier run; empty means the recorded runs
};

// Reads "listed", "reverse", "shuffle", "shuffle:SEED", "history" or "history:FILE". Returns nullopt for anything else.
std::optional<Order> parse_order(std::string_view text);

// Returns the text that gives the same order again. A shuffle without a seed gets one here.
std::string fix_seed(Order& order);

// Returns the order of `count` items as indices; for `history` see history/earlier_run.h. A shuffle needs its seed;
// the same seed gives the same order on every machine.
std::vector<std::size_t> ordered_indices(std::size_t count, const Order& order);

}  // namespace cp_pool
