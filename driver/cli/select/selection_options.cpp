#include "driver/cli/select/selection_options.h"

#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "driver/cli/option_kinds.h"
#include "driver/cli/select/case_source.h"

namespace cp_pool {

namespace {

constexpr const char* kDefaultMatrix = "quick";
constexpr const char* kDefaultSize = "small";

std::string matrix_from_folder(const std::string& text, const std::filesystem::path& folder) {
  const std::filesystem::path path{text};
  return path.has_parent_path() || path.extension() == ".json" ? path_from_folder(text, folder) : text;
}

// If `greedy`, one --matrix may take several values.
void add_matrices(CLI::App& command, SelectionOptions& options, bool greedy, const std::string& help,
                  const std::optional<std::string>& default_matrix) {
  options.size = kDefaultSize;
  add_list(command,
           {.name = "--matrix",
            .type = "NAME|FILE",
            .help = help,
            .default_text = default_matrix,
            .from_folder = matrix_from_folder},
           options.matrices, greedy);
  add_text(command,
           {.name = "--size",
            .type = "SIZE",
            .help = "Size of the cases: full, small, or another that the matrix defines",
            .default_text = kDefaultSize},
           [&options](const std::string& text) { options.size = text; });
}

}  // namespace

void add_selection(CLI::App& command, SelectionOptions& options) {
  add_matrices(command, options, true, "Matrices: names of shipped matrices, or files (with a / or ending in .json)",
               kDefaultMatrix);
  add_list(command,
           {.name = "--filter",
            .type = "EXPR",
            .help = "Select cases by an ID, a glob over IDs or an expression 'comm=p2p & !model=cp_3_*'; several "
                    "filters add up"},
           options.filters, true);
  add_text(command,
           {.name = "-k",
            .type = "EXPR",
            .help = "Keep only cases whose ID or tags contain the words: p2p, or 'p2p and not (thd or fp16)'"},
           [&options](const std::string& text) { options.keywords = text; });
  const auto wrong_with_shard = [](const std::string& text) -> std::string {
    return parse_shard(text) ? "" : fmt::format("'{}' is none of 1/N, 2/N .. N/N", text);
  };
  add_text(command,
           {.name = "--shard",
            .type = "K/N",
            .help = "Select part K of N parts of about equal cost, for job K of N of a CI",
            .check = wrong_with_shard},
           [&options](const std::string& text) { options.shard = *parse_shard(text); });
  add_path(command, "--shard-times", options.shard_times, "FILE", PathUse::input,
           "Divide cases for --shard by the times in an --events FILE, which has to be the same for all jobs");
}

void fill_selection(SelectionOptions& options) {
  if (options.matrices.empty()) options.matrices = {kDefaultMatrix};
}

void add_lookup(CLI::App& command, SelectionOptions& options) {
  add_matrices(command, options, false, "Matrix in which an ID is looked up", "every shipped matrix");
  leave_to_command_line(command, {"--matrix", "--size"});
}

void check_lookup(const CLI::App& command, const std::string& argument) {
  const bool events = argument == "--rerun-failed";
  if (!events && is_id(argument)) return;
  for (const char* name : {"--matrix", "--size"}) {
    if (!was_given(command, name)) continue;
    refuse(command, fmt::format("{} is for the ID of a case, and {} is {}", name, argument,
                                events              ? "a file of cases"
                                : argument == "-"   ? "a stream"
                                : is_json(argument) ? "the case itself"
                                                    : "a file"));
  }
}

void add_edits(CLI::App& command, std::vector<std::string>& edits) {
  add_list(command,
           {.name = "--set",
            .type = "KEY=VALUE",
            .help = "Change a field of the case: comm=a2a, cp_size=4, window=64,0; may be repeated"},
           edits, false);
}

}  // namespace cp_pool
