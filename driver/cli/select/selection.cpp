#include "driver/cli/select/selection.h"

#include <numeric>
#include <random>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_error.h"
#include "driver/cli/program_paths.h"
#include "driver/cli/select/submitted_case.h"

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
  add_list(command, "--matrix", "NAME|FILE", options.matrices, help, greedy,
           {.default_text = default_matrix, .from_folder = matrix_from_folder});
  add_text(command, "--size", "SIZE", options.size,
           "Size of the cases: full, small, or another that the matrix defines", {.default_text = kDefaultSize});
}

std::vector<Matrix> load_matrices(const std::vector<std::string>& names) {
  std::vector<Matrix> matrices;
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (std::find(names.begin(), name, *name) != name) {
      throw CaseError(fmt::format("the matrix {} is given twice", *name));
    }
    matrices.push_back(load_matrix(find_matrix(*name).string()));
  }
  return matrices;
}

void keep_shard(std::vector<SelectedCase>& cases, const Shard& shard, const CaseTimes& times) {
  const auto all = mapped(cases, [](const SelectedCase& selected) -> const auto* { return &selected.matrix_case; });
  const std::vector<std::size_t> shards = deal_out(all, shard.count, times);
  std::vector<SelectedCase> kept;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (shards[i] == shard.index - 1) kept.push_back(std::move(cases[i]));
  }
  cases = std::move(kept);
}

ShardOfRun described(const Shard& shard, const std::vector<SelectedCase>& all) {
  std::vector<std::string> ids;
  std::vector<std::string> cases;
  for (const auto& [of_matrix, matrix] : all) {
    ids.push_back(of_matrix.id);
    const Json json = of_matrix.call ? to_json(*of_matrix.call) : to_json(of_matrix.c);
    cases.push_back(of_matrix.id + ' ' + json.dump());
  }
  return {.index = shard.index,
          .count = shard.count,
          .cases = all.size(),
          .ids = hash_of_all(std::move(ids)),
          .hash = hash_of_all(std::move(cases))};
}

}  // namespace

void add_selection(CLI::App& command, SelectionOptions& options) {
  add_matrices(command, options, true, "Matrices: names of shipped matrices, or files (with a / or ending in .json)",
               kDefaultMatrix);
  add_list(command, "--filter", "EXPR", options.filters,
           "Select cases by an ID, a glob over IDs or an expression 'comm=p2p & !model=cp_3_*'; several "
           "filters add up",
           true);
  add_text(command, "-k", "EXPR", options.keywords,
           "Keep only cases whose ID or tags contain the words: p2p, or 'p2p and not (thd or fp16)'");
  const auto wrong_with_shard = [](const std::string& text) -> std::string {
    return parse_shard(text) ? "" : fmt::format("'{}' is none of 1/N, 2/N .. N/N", text);
  };
  add_text(command, "--shard", "K/N", [&options](const std::string& text) { options.shard = *parse_shard(text); },
           "Select part K of N parts of about equal cost, for job K of N of a CI", {.check = wrong_with_shard});
  add_path(command, "--shard-times", options.shard_times, "FILE", PathUse::input,
           "Divide cases for --shard by the times in an --events FILE, which has to be the same for all jobs");
}

void fill_selection(SelectionOptions& options) {
  if (options.matrices.empty()) options.matrices = {kDefaultMatrix};
}

void add_lookup(CLI::App& command, SelectionOptions& options) {
  add_matrices(command, options, false, "Matrix in which an ID is looked up", "every shipped matrix");
  bar_from_configuration(command, {"--matrix", "--size"});
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
  add_list(command, "--set", "KEY=VALUE", edits,
           "Change a field of the case: comm=a2a, cp_size=4, window=64,0; may be repeated", false);
}

Selection select_cases(const SelectionOptions& options, const TakeSelectedCase& take) {
  const std::vector<Filter> filters =
      mapped(options.filters, [](const std::string& text) { return Filter::parse(text); });
  std::vector<std::size_t> matched(filters.size());
  const Filter keywords = Filter::parse_keywords(options.keywords);
  std::size_t kept_by_keywords = 0;
  Selection selection;
  selection.title = fmt::format("{}", fmt::join(options.matrices, ", "));
  if (options.ids) selection.unknown_ids = *options.ids;
  const std::vector<Matrix> matrices = load_matrices(options.matrices);
  visit_cases(matrices, options.size, [&](const Matrix& matrix, MatrixCase&& c) {
    const bool wanted = !options.ids || selection.unknown_ids.erase(c.id) > 0;
    bool selected = filters.empty() && (!c.optional || options.ids);
    const FilterSubject subject = c.subject();
    for (std::size_t i = 0; i < filters.size(); ++i) {
      if (!filters[i].matches(subject)) continue;
      ++matched[i];
      selected = true;
    }
    const bool kept = keywords.matches(subject);
    kept_by_keywords += kept ? 1 : 0;
    if (!selected || !kept || !wanted) return;
    take({std::move(c), options.matrices[static_cast<std::size_t>(&matrix - matrices.data())]});
  });
  for (std::size_t i = 0; i < filters.size(); ++i) {
    if (matched[i] == 0) selection.idle_filters.push_back(fmt::format("the filter '{}'", options.filters[i]));
  }
  if (kept_by_keywords == 0) selection.idle_filters.push_back(fmt::format("-k '{}'", options.keywords));
  return selection;
}

Selection select_cases(const SelectionOptions& options) {
  std::vector<SelectedCase> cases;
  Selection selection = select_cases(options, [&](SelectedCase&& selected) { cases.push_back(std::move(selected)); });
  if (options.shard.count > 1) {
    selection.shard = described(options.shard, cases);
    keep_shard(cases, options.shard, options.times);
    selection.title += fmt::format(", shard {}/{}", options.shard.index, options.shard.count);
    if (!options.times.hash.empty()) selection.title += fmt::format(" by times {}", options.times.hash);
  }
  selection.cases = std::move(cases);
  return selection;
}

Item item_of(const SelectedCase& selected, const std::string& program, const ExecutionOptions& execution) {
  const MatrixCase& c = selected.matrix_case;
  Item item{{.id = c.id,
             .payload = c.call ? Payload(*c.call) : Payload(c.c),
             .rerun = rerun_line({program, "run", "--matrix", selected.matrix, "--size", c.size, "--filter", c.id},
                                 execution)}};
  set_worker_of_call(execution.worker, execution.fork != "off", item);
  return item;
}

std::vector<InputFile> matrix_inputs(const SelectionOptions& options) {
  const bool named = !options.matrices.empty();
  std::vector<InputFile> inputs;
  for (const std::string& matrix : named ? options.matrices : shipped_matrices()) {
    inputs.push_back(
        {.name = fmt::format("{} {}", named ? "--matrix" : "the matrix", matrix), .path = find_matrix(matrix)});
  }
  return inputs;
}

std::string nothing_selected(const SelectionOptions& options) {
  SelectionOptions unsharded = options;
  unsharded.shard = {};
  if (options.shard.count > 1 && !select_cases(unsharded).cases.empty()) {
    return fmt::format("no case is in shard {}/{}: there are fewer than {}", options.shard.index, options.shard.count,
                       options.shard.count);
  }
  std::string text = fmt::format("no case of {} is selected", fmt::join(options.matrices, ", "));
  std::vector<std::string> others;
  for (const std::string& name : shipped_matrices()) {
    if (std::ranges::count(options.matrices, name) > 0) continue;
    SelectionOptions other = unsharded;
    other.matrices = {name};
    try {
      if (!select_cases(other).cases.empty()) others.push_back(name);
    } catch (const CaseError&) {  // the matrix has no such size
      continue;
    }
  }
  if (!others.empty()) text += fmt::format("; there are some in --matrix {}", fmt::join(others, " "));
  return text;
}

std::optional<Order> parse_order(std::string_view text) {
  constexpr std::string_view kHistory = "history:";
  constexpr std::string_view kShuffle = "shuffle:";
  Order order{.text = std::string(text)};
  if (text == "listed") return order;
  order.kind = text == "reverse"             ? Order::Kind::reverse
               : text.starts_with("shuffle") ? Order::Kind::shuffle
                                             : Order::Kind::history;
  if (text == "reverse" || text == "shuffle" || text == "history") return order;
  if (text.starts_with(kHistory) && text.size() > kHistory.size()) {
    order.events = text.substr(kHistory.size());
    return order;
  }
  if (text.starts_with(kShuffle)) order.seed = parse_number<std::uint64_t>(text.substr(kShuffle.size()));
  return order.seed ? std::optional(order) : std::nullopt;
}

std::string fix_seed(Order& order) {
  if (order.kind != Order::Kind::shuffle) return order.text;
  if (!order.seed) order.seed = std::random_device{}();
  return fmt::format("shuffle:{}", *order.seed);
}

std::vector<std::size_t> ordered_indices(std::size_t count, const Order& order) {
  std::vector<std::size_t> indices(count);
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  if (order.kind == Order::Kind::reverse) std::ranges::reverse(indices);
  if (order.kind == Order::Kind::shuffle) {
    // Fisher-Yates by hand, since std::shuffle and the standard distributions draw other numbers in other libraries.
    std::mt19937_64 engine{order.seed.value()};
    for (std::size_t i = count; i > 1; --i) std::swap(indices[i - 1], indices[engine() % i]);
  }
  return indices;
}

}  // namespace cp_pool
