// Expands matrices to cases.
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_error.h"
#include "cases/case_id.h"
#include "cases/did_you_mean.h"
#include "cases/matrix.h"

namespace cp_pool {
namespace {

// A case under construction, and for each of its values the place in the file that it comes from.
class Draft {
 public:
  Draft(const Matrix& matrix, const MatrixModel& model) : matrix_(matrix), model_(model) {
    c.suite = matrix.suite;
    c.model = model.name;
    tags_.insert(model.tags.begin(), model.tags.end());
  }

  void set(const MatrixValue& value) { set(*value.field, value.value, value.place); }
  void set(const CaseField& field, const Json& value, const JsonPlace& place) {
    field.read(value, place, c);
    origin_.insert_or_assign(std::string(field.name), place);
  }

  // Applies the matrix's rules. of_call: the ID, if it is a call. Returns false if the matrix excludes the case.
  bool apply_rules(const std::string& of_call = {}) {
    for (const MatrixRule& rule : matrix_.rules) {
      if (!matches(rule.when)) continue;
      if (call && !rule.set.empty()) {
        rule.set.front().place.fail(fmt::format("a rule sets nothing in a call (in {})", of_call));
      }
      for (const MatrixValue& value : rule.set) set(value);
      tags_.insert(rule.tags.begin(), rule.tags.end());
    }
    const auto is_match = [this](const Filter& filter) { return matches(filter); };
    optional_ = std::ranges::any_of(matrix_.optional, is_match);
    return std::ranges::none_of(matrix_.excludes, is_match);
  }

  [[nodiscard]] MatrixCase made(const std::string& id, std::string_view size) const {
    return {.id = id,
            .c = c,
            .call = call,
            .size = std::string(size),
            .tags = {tags_.begin(), tags_.end()},
            .optional = optional_,
            .source = fmt::format("{}: {}", matrix_.source, model_.place.path())};
  }

  void expect_valid(const std::string& id) const {
    const auto missing = missing_sizes([this](std::string_view name) { return origin_.contains(name); });
    if (!missing.empty()) {
      const bool one = missing.size() == 1;
      model_.place.fail(fmt::format("the size{} '{}' {} missing: {} not set in the model, the defaults or the axes",
                                    one ? "" : "s", fmt::join(missing, "', '"), one ? "is" : "are",
                                    one ? "it is" : "they are"));
    }
    const auto problem = find_problem(c);
    if (!problem) return;
    const auto origin = origin_.find(problem->field.substr(0, problem->field.find('[')));
    if (origin == origin_.end()) model_.place.fail(fmt::format("{}: {} (in {})", problem->field, problem->message, id));
    origin->second.fail(fmt::format("{} (in {})", problem->message, id));
  }

  Case c;
  std::optional<Call> call;

 private:
  [[nodiscard]] bool matches(const Filter& filter) const {
    const std::vector<std::string> list(tags_.begin(), tags_.end());
    return filter.matches({.c = c, .tags = list, .id = {}, .size = {}, .call = call ? &*call : nullptr});
  }

  const Matrix& matrix_;
  const MatrixModel& model_;
  std::set<std::string> tags_;
  bool optional_ = false;
  std::map<std::string, JsonPlace, std::less<>> origin_;
};

// The order of expansion, the slowest axis first. Axes that change the inputs come before those that do not.
std::size_t axis_rank(const MatrixAxis& axis) {
  constexpr std::array<std::string_view, 11> kLast{"layout",      "seqlens",  "seqlens_kv",   "pad_between_seqs",
                                                   "backend",     "comm",     "cp_size",      "group",
                                                   "group_ranks", "training", "deterministic"};
  if (axis.field->name == "dtype") return 0;
  const auto* const last = std::ranges::find(kLast, axis.field->name);
  if (last != kLast.end()) return case_fields().size() + 1 + static_cast<std::size_t>(last - kLast.begin());
  return 1 + static_cast<std::size_t>(axis.field - case_fields().data());
}

template <typename Range>
bool has_field(const Range& range, const CaseField* field) {
  return std::ranges::any_of(range, [field](const auto& element) { return element.field == field; });
}

// Returns the axes of a model: those of the model override those of the size, and those override the file's.
std::vector<MatrixAxis> axes_of(const Matrix& matrix, const MatrixModel& model, const MatrixSize& size) {
  std::vector<MatrixAxis> axes = model.axes;
  const auto add = [&](const std::vector<MatrixAxis>& more) {
    for (const MatrixAxis& axis : more) {
      if (!has_field(axes, axis.field) && !has_field(model.values, axis.field)) axes.push_back(axis);
    }
  };
  add(size.axes);
  add(matrix.axes);
  std::ranges::sort(axes, {}, axis_rank);
  return axes;
}

// Steps to the next combination, the last axis fastest; false after the last one.
bool advance(std::vector<std::size_t>& choice, const std::vector<MatrixAxis>& axes) {
  for (std::size_t i = axes.size(); i-- > 0;) {
    if (++choice[i] < axes[i].values.size()) return true;
    choice[i] = 0;
  }
  return false;
}

// Divides positive lengths only: -1 (infinite), 0 (none) and null (drawn) mean the same at every size.
std::int64_t divide(std::int64_t length, std::int64_t divisor, const JsonPlace& place, const std::string& id) {
  if (length <= 0) return length;
  if (length % divisor != 0) place.fail(fmt::format("{} is not a multiple of {} (in {})", length, divisor, id));
  return length / divisor;
}

void resize(Draft& draft, const MatrixSize& size, const std::string& id) {
  for (const auto& [field, divisor] : size.divide) {
    Json value = field.field->write(draft.c);
    if (value.is_array()) {
      for (Json& element : value) element = divide(element.get<std::int64_t>(), divisor, field.place, id);
    } else if (!value.is_null()) {
      value = divide(value.get<std::int64_t>(), divisor, field.place, id);
    }
    draft.set(*field.field, value, field.place);
  }
  if (size.heads.empty()) return;
  const JsonPlace place = size.place.key("heads");
  const auto found = size.heads.find({draft.c.heads, draft.c.kv_heads});
  if (found == size.heads.end()) {
    place.fail(fmt::format("no entry for {}/{} (in {})", draft.c.heads, draft.c.kv_heads, id));
  }
  draft.set(*find_case_field("heads"), found->second.first, place);
  draft.set(*find_case_field("kv_heads"), found->second.second, place);
}

std::optional<MatrixCase> build(const Matrix& matrix, const MatrixModel& model, const MatrixSize& size,
                                const std::vector<MatrixAxis>& axes, const std::vector<std::size_t>& choice) {
  Draft draft(matrix, model);
  for (const MatrixValue& value : matrix.defaults) draft.set(value);
  for (const MatrixValue& value : model.values) draft.set(value);
  std::vector<const CaseField*> shown;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    draft.set(axes[i].values[choice[i]]);
    shown.push_back(axes[i].field);
  }
  if (!draft.apply_rules()) return std::nullopt;
  std::ranges::sort(shown);  // the order of the JSON form
  const std::string id = case_id(draft.c, shown);
  draft.expect_valid(id);
  resize(draft, size, id);
  draft.expect_valid(id);
  return draft.made(id, size.name);
}

// The value of an axis in an ID: "cp4", a text as it is, and any other value with the argument's name. Characters that
// filters or shells treat in their own way become '_'.
std::string id_part(const MatrixAxis& axis, const Json& value) {
  std::string text = argument_text(value);
  if (axis.name == "cp_size") return "cp" + text;
  if (!value.is_string()) text = axis.name + "=" + text;
  constexpr std::string_view kAllowed = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.+-=,:";
  std::ranges::replace_if(text, [&](char c) { return kAllowed.find(c) == std::string_view::npos; }, '_');
  return text;
}

std::optional<MatrixCase> build_call(const Matrix& matrix, const MatrixModel& model, std::string_view size,
                                     const std::vector<std::size_t>& choice) {
  Draft draft(matrix, model);
  Call& call = draft.call.emplace(*model.call);
  std::string id = fmt::format("{}/{}", matrix.suite, model.name);
  for (std::size_t i = 0; i < choice.size(); ++i) {
    const MatrixAxis& axis = model.axes[i];
    const Json& value = axis.values[choice[i]].value;
    id += '/' + id_part(axis, value);
    if (axis.name == "cp_size") {
      call.cp_size = value.get<int>();
    } else {
      call.arguments[axis.name] = value;
    }
  }
  draft.c.cp_size = call.cp_size;
  if (!draft.apply_rules(id)) return std::nullopt;
  return draft.made(id, size);
}

const MatrixSize& find_size(const Matrix& matrix, std::string_view name) {
  const auto found = std::ranges::find(matrix.sizes, name, &MatrixSize::name);
  if (found != matrix.sizes.end()) return *found;
  std::vector<std::string> known;
  known.reserve(matrix.sizes.size());
  for (const MatrixSize& size : matrix.sizes) known.push_back(size.name);
  JsonPlace(matrix.source)
      .key("sizes")
      .fail(fmt::format("no size '{}'{} (known: {})", name, did_you_mean(name, known), join_names(known)));
}

// Returns the model and the axis values of a combination, which explain why two combinations have one ID.
std::string place_of(const Matrix& matrix, const MatrixModel& model, const std::vector<MatrixAxis>& axes,
                     const std::vector<std::size_t>& choice) {
  std::string values;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].values.size() == 1 && !model.call) continue;
    const MatrixValue& value = axes[i].values[choice[i]];
    values += fmt::format("{}{}={}", values.empty() ? " with " : ", ", axes[i].name, value.value.dump());
    if (!model.call) values += fmt::format(" ({})", value.place.path());
  }
  return fmt::format("{}: {}{}", matrix.source, model.place.path(), values);
}

// Calls `take` with each combination of the model, and a function that returns its place_of(), until `take` returns
// false. An excluded combination is nullopt.
template <typename Take>
void visit_model(const Matrix& matrix, const MatrixModel& model, std::string_view size_name, const Take& take) {
  const MatrixSize* const size = model.call ? nullptr : &find_size(matrix, size_name);
  const std::vector<MatrixAxis> axes = size == nullptr ? model.axes : axes_of(matrix, model, *size);
  std::vector<std::size_t> choice(axes.size(), 0);
  do {
    if (!take(
            size == nullptr ? build_call(matrix, model, size_name, choice) : build(matrix, model, *size, axes, choice),
            [&] { return place_of(matrix, model, axes, choice); })) {
      return;
    }
  } while (advance(choice, axes));
}

// Returns place_of() of the first two combinations with that ID, or of the only one.
std::vector<std::string> find_places(std::span<const Matrix> matrices, std::string_view size_name,
                                     const std::string& id) {
  std::vector<std::string> places;
  const auto note = [&](const std::optional<MatrixCase>& made, const auto& place) {
    if (made && made->id == id) places.push_back(place());
    return places.size() < 2;
  };
  for (const Matrix& matrix : matrices) {
    for (const MatrixModel& model : matrix.models) {
      if (places.size() < 2) visit_model(matrix, model, size_name, note);
    }
  }
  return places;
}

// Throws CaseError if the matrix has so many combinations that they would fill the memory.
void check_case_count(const Matrix& matrix, std::string_view size) {
  constexpr std::size_t kMost = 1'000'000;
  std::size_t all = 0;
  for (const MatrixModel& model : matrix.models) {
    std::size_t combinations = 1;
    for (const MatrixAxis& axis : model.call ? model.axes : axes_of(matrix, model, find_size(matrix, size))) {
      combinations = std::min(combinations * axis.values.size(), kMost + 1);
    }
    all += combinations;
    if (all <= kMost) continue;
    JsonPlace(matrix.source)
        .key("models")
        .key(model.name)
        .fail(fmt::format("with its axes the matrix has more than {} combinations", kMost));
  }
}

}  // namespace

void visit_cases(std::span<const Matrix> matrices, std::string_view size_name, const TakeMatrixCase& take) {
  std::unordered_set<std::size_t> ids;  // hashes, which take less memory than the IDs
  for (const Matrix& matrix : matrices) {
    if (!matrix.sizes.empty()) find_size(matrix, size_name);  // calls need none, but the name must not be wrong
    check_case_count(matrix, size_name);
    std::size_t made_of_matrix = 0;
    std::size_t excluded = 0;
    const auto take_one = [&](std::optional<MatrixCase>&& made, const auto& /*place*/) {
      if (!made) {
        ++excluded;
        return true;
      }
      ++made_of_matrix;
      if (!ids.insert(std::hash<std::string>{}(made->id)).second) {
        const std::vector<std::string> places = find_places(matrices, size_name, made->id);
        if (places.size() > 1) {
          throw CaseError(
              fmt::format("two cases have the ID {}: one of {}, one of {}", made->id, places[0], places[1]));
        }
      }
      take(matrix, *std::move(made));
      return true;
    };
    for (const MatrixModel& model : matrix.models) visit_model(matrix, model, size_name, take_one);
    if (made_of_matrix == 0) {
      JsonPlace(matrix.source)
          .key("exclude")
          .fail(fmt::format("exclude removes all {} combinations, so the matrix has no case", excluded));
    }
  }
}

std::vector<MatrixCase> expand(std::span<const Matrix> matrices, std::string_view size_name) {
  std::vector<MatrixCase> cases;
  visit_cases(matrices, size_name, [&](const Matrix&, MatrixCase&& made) { cases.push_back(std::move(made)); });
  return cases;
}

}  // namespace cp_pool
