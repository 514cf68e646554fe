// Parses matrix files strictly.
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "cases/case_error.h"
#include "cases/json_text.h"
#include "cases/matrix.h"
#include "cases/parse_number.h"

namespace cp_pool {
namespace {

constexpr const char* kRanks = "cp_size";

const Json* find(const Json& object, std::string_view key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

const Json& required(const Json& object, const JsonPlace& place, std::string_view key) {
  const Json* value = find(object, key);
  if (value == nullptr) place.fail(fmt::format("'{}' is missing", key));
  return *value;
}

// The keys of a case that a matrix file may set. Suite and model follow from the file's structure.
const CaseField& settable_field(std::string_view key, const JsonPlace& object, const std::vector<std::string>& also) {
  constexpr std::array<std::string_view, 2> kOwn{"suite", "model"};
  const CaseField* field = find_case_field(key);
  if (field != nullptr && std::ranges::find(kOwn, key) == kOwn.end()) return *field;
  if (field != nullptr) object.key(key).fail(fmt::format("'{}' is set for the whole file, not here", key));
  std::vector<std::string> known = also;
  for (const std::string& name : case_field_names()) {
    if (std::ranges::find(kOwn, name) == kOwn.end()) known.push_back(name);
  }
  fail_unknown_key(object, key, known);
}

MatrixValue read_value(const CaseField& field, const Json& value, const JsonPlace& place) {
  Case scratch;
  field.read(value, place, scratch);
  return {.field = &field, .value = value, .place = place};
}

std::vector<MatrixValue> read_values(const Json& object, const JsonPlace& place,
                                     const std::vector<std::string>& other_keys = {}) {
  std::vector<MatrixValue> values;
  for (const auto& [key, value] : expect_object(object, place)) {
    if (std::ranges::find(other_keys, key) != other_keys.end()) continue;
    values.push_back(read_value(settable_field(key, place, other_keys), value, place.key(key)));
  }
  return values;
}

// of_call: the axes are arguments of a call, or its number of ranks.
std::vector<MatrixAxis> read_axes(const Json& object, const JsonPlace& place, bool of_call = false) {
  std::vector<MatrixAxis> axes;
  for (const auto& [key, values] : expect_object(object, place)) {
    MatrixAxis axis{.name = key, .field = of_call ? nullptr : &settable_field(key, place, {}), .values = {}};
    const JsonPlace axis_place = place.key(key);
    for (const Json& value : expect_array(values, axis_place)) {
      const JsonPlace value_place = axis_place.index(axis.values.size());
      const bool twice = std::ranges::find(axis.values, value, &MatrixValue::value) != axis.values.end();
      if (twice) value_place.fail(fmt::format("{} is given twice", describe(value)));
      if (of_call && key == kRanks) expect_ranks(value, value_place);
      axis.values.push_back(of_call ? MatrixValue{.field = nullptr, .value = value, .place = value_place}
                                    : read_value(*axis.field, value, value_place));
    }
    if (axis.values.empty()) axis_place.fail("an axis needs at least one value");
    axes.push_back(std::move(axis));
  }
  return axes;
}

void expect_name(const std::string& name, const JsonPlace& place) {
  Case scratch;
  scratch.model = name;
  scratch.seqlen_q = scratch.seqlen_kv = 4;
  scratch.heads = scratch.kv_heads = scratch.head_dim_qk = scratch.head_dim_v = 1;
  if (const auto problem = find_problem(scratch)) place.fail(problem->message);
}

std::vector<std::string> read_tags(const Json& array, const JsonPlace& place) {
  std::vector<std::string> tags;
  for (const Json& element : expect_array(array, place)) {
    const JsonPlace element_place = place.index(tags.size());
    tags.push_back(expect_string(element, element_place));
    expect_name(tags.back(), element_place);
  }
  return tags;
}

Filter read_filter(const Json& text, const JsonPlace& place) {
  const std::string& expression = expect_string(text, place);
  try {
    return Filter::parse(expression, Filter::Scope::case_and_tags);
  } catch (const CaseError& e) {
    place.fail(e.what());
  }
}

std::vector<Filter> read_filters(const Json& array, const JsonPlace& place) {
  std::vector<Filter> filters;
  for (const Json& element : expect_array(array, place)) {
    filters.push_back(read_filter(element, place.index(filters.size())));
  }
  return filters;
}

// JSON has no comments, so "about" says what a model or rule is for.
void check_about(const Json& object, const JsonPlace& place) {
  if (const Json* about = find(object, "about")) expect_string(*about, place.key("about"));
}

MatrixModel read_model(const std::string& name, const Json& object, const JsonPlace& place) {
  expect_name(name, place);
  const bool is_call = object.is_object() && object.contains("call");
  MatrixModel model{.name = name, .place = place, .values = {}, .axes = {}, .tags = {}, .call = std::nullopt};
  if (is_call) {
    expect_known_keys(object, place, {"about", "call", "arguments", "axes", "cp_size", "tags"});
    model.call = read_call(object, place, "call");
  } else {
    model.values = read_values(object, place, {"about", "axes", "tags"});
  }
  check_about(object, place);
  if (const Json* axes = find(object, "axes")) model.axes = read_axes(*axes, place.key("axes"), is_call);
  if (const Json* tags = find(object, "tags")) model.tags = read_tags(*tags, place.key("tags"));
  for (const auto& [axis, field, values] : model.axes) {
    if (!is_call && object.contains(axis)) place.key(axis).fail("this key is an axis of the model too");
    const bool fixed = is_call && (axis == kRanks ? object.contains(kRanks) : model.call->arguments.contains(axis));
    if (fixed) place.key("axes").key(axis).fail("this is given a single value too");
  }
  return model;
}

MatrixRule read_rule(const Json& object, const JsonPlace& place) {
  expect_known_keys(object, place, {"about", "when", "set", "tags"});
  check_about(object, place);
  MatrixRule rule{.when = read_filter(required(object, place, "when"), place.key("when")), .set = {}, .tags = {}};
  if (const Json* set = find(object, "set")) rule.set = read_values(*set, place.key("set"));
  if (const Json* tags = find(object, "tags")) rule.tags = read_tags(*tags, place.key("tags"));
  if (rule.set.empty() && rule.tags.empty()) place.fail("a rule needs 'set' or 'tags'");
  return rule;
}

// Parses "12/4" as 12 heads and 4 kv_heads.
MatrixSize::Heads read_heads(const std::string& text, const JsonPlace& place) {
  const std::size_t slash = text.find('/');
  const auto heads = parse_number<std::int64_t>(std::string_view(text).substr(0, slash));
  const auto kv_heads = parse_number<std::int64_t>(std::string_view(text).substr(slash + 1));
  if (slash != std::string::npos && heads > 0 && kv_heads > 0) return {*heads, *kv_heads};
  place.fail(fmt::format("{} is not HEADS/KV_HEADS, e.g. \"12/4\"", describe(text)));
}

std::vector<std::pair<MatrixValue, std::int64_t>> read_divide(const Json& object, const JsonPlace& place) {
  const std::vector<std::string> lengths{"seqlen_q", "seqlen_kv",  "window",    "chunk",
                                         "seqlens",  "seqlens_kv", "replicated"};
  expect_known_keys(object, place, lengths);
  std::vector<std::pair<MatrixValue, std::int64_t>> divide;
  for (const auto& [key, value] : object.items()) {
    const std::int64_t divisor = expect_int64(value, place.key(key));
    if (divisor < 1) place.key(key).fail(fmt::format("{} is not a divisor", divisor));
    divide.push_back({{.field = find_case_field(key), .value = value, .place = place.key(key)}, divisor});
  }
  return divide;
}

MatrixSize read_size(const std::string& name, const Json& object, const JsonPlace& place, const Matrix& matrix) {
  expect_name(name, place);
  expect_known_keys(object, place, {"axes", "divide", "heads"});
  MatrixSize size{.name = name, .place = place, .axes = {}, .divide = {}, .heads = {}};
  if (const Json* axes = find(object, "axes")) size.axes = read_axes(*axes, place.key("axes"));
  for (const MatrixAxis& axis : size.axes) {
    const bool known = std::ranges::find(matrix.axes, axis.field, &MatrixAxis::field) != matrix.axes.end();
    if (!known) {
      place.key("axes").key(axis.name).fail("sizes may replace only axes of the file; a new axis would change IDs");
    }
  }
  if (const Json* divide = find(object, "divide")) size.divide = read_divide(*divide, place.key("divide"));
  if (const Json* heads = find(object, "heads")) {
    const JsonPlace heads_place = place.key("heads");
    for (const auto& [from, to] : expect_object(*heads, heads_place)) {
      const JsonPlace pair_place = heads_place.key(from);
      size.heads.emplace(read_heads(from, pair_place), read_heads(expect_string(to, pair_place), pair_place));
    }
  }
  return size;
}

}  // namespace

Matrix parse_matrix(const Json& json, std::string_view source) {
  const JsonPlace root(source);
  expect_known_keys(json, root,
                    {"suite", "about", "seed", "defaults", "axes", "models", "rules", "exclude", "optional", "sizes"});
  Matrix matrix;
  matrix.source = source;
  matrix.suite = expect_string(required(json, root, "suite"), root.key("suite"));
  expect_name(matrix.suite, root.key("suite"));
  if (const Json* about = find(json, "about")) matrix.about = expect_string(*about, root.key("about"));
  if (const Json* defaults = find(json, "defaults")) matrix.defaults = read_values(*defaults, root.key("defaults"));
  if (const Json* axes = find(json, "axes")) matrix.axes = read_axes(*axes, root.key("axes"));
  if (const Json* seed = find(json, "seed")) {
    const CaseField& field = *find_case_field("seed");
    for (const MatrixValue& value : matrix.defaults) {
      if (value.field == &field) value.place.fail("this key is set for the whole file too");
    }
    matrix.defaults.push_back(read_value(field, *seed, root.key("seed")));
  }
  for (const MatrixValue& value : matrix.defaults) {
    const bool is_axis = std::ranges::find(matrix.axes, value.field, &MatrixAxis::field) != matrix.axes.end();
    if (is_axis) value.place.fail("this key is an axis of the file too");
  }

  const JsonPlace models = root.key("models");
  for (const auto& [name, object] : expect_object(required(json, root, "models"), models)) {
    matrix.models.push_back(read_model(name, object, models.key(name)));
  }
  if (matrix.models.empty()) models.fail("a matrix needs at least one model");

  if (const Json* rules = find(json, "rules")) {
    const JsonPlace place = root.key("rules");
    for (const Json& rule : expect_array(*rules, place)) {
      matrix.rules.push_back(read_rule(rule, place.index(matrix.rules.size())));
    }
  }
  if (const Json* excludes = find(json, "exclude")) matrix.excludes = read_filters(*excludes, root.key("exclude"));
  if (const Json* optional = find(json, "optional")) matrix.optional = read_filters(*optional, root.key("optional"));
  const JsonPlace sizes = root.key("sizes");
  const bool only_calls = std::ranges::all_of(matrix.models, [](const MatrixModel& m) { return m.call.has_value(); });
  if (only_calls && find(json, "sizes") == nullptr) return matrix;
  for (const auto& [name, object] : expect_object(required(json, root, "sizes"), sizes)) {
    matrix.sizes.push_back(read_size(name, object, sizes.key(name), matrix));
  }
  if (matrix.sizes.empty()) sizes.fail("a matrix needs at least one size");
  return matrix;
}

Matrix load_matrix(const std::string& path) {
  return parse_matrix(read_json_file(path), path);
}

}  // namespace cp_pool
