#include "driver/cli/select/submitted_case.h"

#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_error.h"
#include "cases/case_id.h"
#include "cases/did_you_mean.h"
#include "cases/json_text.h"
#include "cases/text_hash.h"
#include "driver/cli/program_paths.h"
#include "driver/cli/shell_words.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {
namespace {

using Edits = std::vector<std::string>;

// Text that is no JSON is taken for a name. JSON is read as strictly as in a file.
Json as_json(const std::string& text, std::string_view source) {
  if (text == "none") return nullptr;
  if (Json::accept(text)) return parse_json_text(text, source);
  const std::string list = fmt::format("[{}]", text);
  if (text.find(',') != std::string::npos && Json::accept(list)) return parse_json_text(list, source);
  return text;
}

Json value_for(const CaseField& field, const std::string& text, std::string_view source) {
  using Kind = CaseField::Kind;
  // A name that looks like a number (a suite called 1) is still a name, and a number may stand for a list of one.
  const bool is_name = field.kind == Kind::text || field.kind == Kind::name;
  if (is_name && text.find_first_not_of("0123456789.eE+-") == std::string::npos) return text;
  Json value = as_json(text, source);
  if (value.is_number() && field.kind == Kind::list) return Json::array({value});
  return value;
}

// Returns the field with its new value in the form that a case has in JSON.
search::FixedField fixed_field(const std::string& text) {
  const std::string source = fmt::format("--set {}", text);
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) throw CaseError(fmt::format("{}: it is not KEY=VALUE", source));
  const std::string key = text.substr(0, equals);
  const CaseField* field = find_case_field(key);
  if (field == nullptr) {
    throw CaseError(fmt::format("{}: a case has no field '{}'{}", source, key, did_you_mean(key, case_field_names())));
  }
  Case c;  // reads the value, which checks it
  field->read(value_for(*field, text.substr(equals + 1), source), JsonPlace{source}.key(key), c);
  return {.field = field, .value = field->write(c)};
}

constexpr std::size_t kHashDigits = 10;  // among a hundred thousand cases two share a hash with a probability of 0.5 %
constexpr std::size_t kLongestId = 1000;

// Returns a hash of the sizes and the fields that differ from their default, so that a new field in a later version
// changes no hash.
std::string short_hash(const Case& c) {
  return text_hash(short_json(c).dump()).substr(0, kHashDigits);
}

std::string given_id(const Json& json, const JsonPlace& place) {
  const std::string& id = expect_string(json, place);
  if (id.empty()) place.fail("an ID cannot be empty");
  if (id.size() > kLongestId) place.fail(fmt::format("an ID has at most {} bytes, this one {}", kLongestId, id.size()));
  const bool breaks_lines = id.find_first_of("\n\t") != std::string::npos;
  if (breaks_lines || protocol::clean_text(id) != id) {
    place.fail(fmt::format("{} has a control character", describe(json)));
  }
  return id;
}

// Returns the fields that the edits name, for an ID that distinguishes the edited case. The edits are valid.
std::vector<const CaseField*> edited_fields(const Edits& edits) {
  return mapped(edits, [](const std::string& text) { return find_case_field(text.substr(0, text.find('='))); });
}

// Returns "/heads=8" for each field that was edited.
std::string edited_parts(const Case& c, const std::vector<std::string>& edits) {
  std::string parts;
  std::vector<const CaseField*> seen;
  for (const CaseField* field : edited_fields(edits)) {
    if (std::ranges::count(seen, field) > 0) continue;
    seen.push_back(field);
    parts += fmt::format("/{}={}", field->name, field_text(*field, c));
  }
  return parts;
}

Item read_submitted_call(const Json& json, const JsonPlace& root, const std::vector<std::string>& edits) {
  expect_known_keys(json, root, {"id", "world_size", "size", "tags", "call", "timeout_ms", "fresh"});
  if (!edits.empty()) root.fail("--set changes attention cases, and this is a call");
  Item submitted{{.id = {}, .payload = parse_call(json.at("call"), root.source() + ", call")}};
  const auto id = json.find("id");
  submitted.id = id == json.end() ? submitted.payload->default_id() : given_id(*id, root.key("id"));
  if (const auto timeout = json.find("timeout_ms"); timeout != json.end()) {
    submitted.timeout = std::chrono::milliseconds(expect_int64(*timeout, root.key("timeout_ms")));
    if (submitted.timeout->count() <= 0) root.key("timeout_ms").fail("a deadline is at least 1 ms");
  }
  if (const auto fresh = json.find("fresh"); fresh != json.end() && expect_bool(*fresh, root.key("fresh"))) {
    // Pools are shared by items whose ranks have the same settings.
    submitted.ranks.emplace().environment = {fmt::format("CP_POOL_FRESH={}", root.source())};
  }
  return submitted;
}

// Reads the JSON of one case. Throws CaseError that says how several cases are run.
Json read_one_case(const std::string& file) {
  Json json;
  try {
    json = read_json_file(file);
  } catch (const CaseError& e) {
    if (!std::string_view{e.what()}.ends_with("expected end of input")) throw;  // of text behind a whole object
    throw CaseError(fmt::format("{} (a stream goes to submit -: cp-pool submit - < {})", e.what(), shell_line({file})));
  }
  if (json.is_array()) {
    throw CaseError(
        fmt::format("{}: an array, not a case (a stream goes to submit -: jq -c '.[]' {} | cp-pool submit -)", file,
                    shell_line({file})));
  }
  return json;
}

std::string rerun_of_submit(std::vector<std::string> words, const Edits& edits, const ExecutionOptions& execution) {
  for (const std::string& edit : edits) words.insert(words.end(), {"--set", edit});
  return rerun_line(std::move(words), execution);
}

Item case_of_matrix(const SelectedCase& selected, const Edits& edits, const ExecutionOptions& execution,
                    const std::string& program) {
  const MatrixCase& c = selected.matrix_case;
  if (c.call && !edits.empty()) throw CaseError(fmt::format("--set changes attention cases, and {} is a call", c.id));
  if (edits.empty()) return item_of(selected, program, execution);
  const Case edited = parse_edited_case(to_json(c.c), "", edits);
  return {{.id = case_id(edited, edited_fields(edits)),
           .payload = edited,
           .rerun = rerun_of_submit({program, "submit", c.id, "--matrix", selected.matrix, "--size", c.size}, edits,
                                    execution)}};
}

// Looks first in the shipped matrix that is named like the suite with which the ID begins, so that the others need not
// be expanded.
SelectedCase look_up(const std::string& id, SelectionOptions options) {
  options.filters = {"*"};  // includes the optional cases
  std::vector<std::vector<std::string>> places{options.matrices};
  if (options.matrices.empty()) {
    const std::string suite = id.substr(0, id.find('/'));
    places = {shipped_matrices()};
    if (std::ranges::count(places.front(), suite) > 0) places.insert(places.begin(), std::vector{suite});
  }
  std::vector<std::string> ids;
  for (const std::vector<std::string>& matrices : places) {
    options.matrices = matrices;
    ids.clear();
    for (SelectedCase& selected : select_cases(options).cases) {
      if (selected.matrix_case.id == id) return std::move(selected);
      ids.push_back(selected.matrix_case.id);
    }
  }
  throw CaseError(fmt::format("there is no file and no case '{}' in {} (size {}){}", id,
                              fmt::join(options.matrices, ", "), options.size, did_you_mean(id, ids)));
}

}  // namespace

Case parse_edited_case(const Json& json, std::string_view source, const std::vector<std::string>& edits) {
  if (edits.empty()) return parse_case(json, source);
  expect_object(json, JsonPlace{source});
  Json edited = json;
  for (search::FixedField& fixed : fixed_fields(edits)) edited[std::string{fixed.field->name}] = std::move(fixed.value);
  return parse_case(edited,
                    fmt::format("{}{}--set {}", source, source.empty() ? "" : " with ", fmt::join(edits, " --set ")));
}

std::vector<search::FixedField> fixed_fields(const std::vector<std::string>& edits) {
  std::vector<search::FixedField> fixed;
  for (const std::string& text : edits) {
    search::FixedField one = fixed_field(text);
    std::erase_if(fixed, [&](const search::FixedField& earlier) { return earlier.field == one.field; });
    fixed.push_back(std::move(one));
  }
  return fixed;
}

Item read_submitted_case(const Json& json, std::string_view source, const std::vector<std::string>& edits) {
  const JsonPlace root{source};
  expect_object(json, root);
  if (json.contains("call")) return read_submitted_call(json, root, edits);
  Case c;
  if (const auto wrapped = json.find("case"); wrapped != json.end()) {
    expect_known_keys(json, root, {"id", "world_size", "size", "tags", "case", "lengths"});
    c = parse_edited_case(*wrapped, fmt::format("{}, case", source), edits);
  } else {
    Json fields = json;
    fields.erase("id");
    c = parse_edited_case(fields, source, edits);
  }
  const auto id = json.find("id");
  return {{.id = id == json.end() ? fmt::format("{}/hash={}", case_id(c, edited_fields(edits)), short_hash(c))
                                  : given_id(*id, root.key("id")) + edited_parts(c, edits),
           .payload = c}};
}

Json to_json(const Item& submitted) {
  Json json = {{"id", submitted.id}, {submitted.payload->key(), submitted.payload->json()}};
  if (submitted.timeout) json["timeout_ms"] = submitted.timeout->count();
  return json;
}

std::string rerun_of_json(const std::string& program, const std::string& case_json, const ExecutionOptions& options) {
  return fmt::format("{} | {}", shell_line({"printf", "%s\\n", case_json}),
                     rerun_line({program, "submit", "-"}, options));
}

Item read_item(const Json& json, std::string_view source, const std::vector<std::string>& edits,
               const ExecutionOptions& execution, const std::string& program) {
  Item item = read_submitted_case(json, source, edits);
  item.rerun = rerun_of_json(program, to_json(item).dump(), execution);
  set_worker_of_call(execution.worker, execution.fork != "off", item);
  return item;
}

bool is_json(const std::string& argument) {
  return argument.starts_with('{');
}

bool is_id(const std::string& argument) {
  std::error_code ignored;
  return argument != "-" && !is_json(argument) && !argument.ends_with(".json") &&
         (!std::filesystem::exists(argument, ignored) || std::filesystem::is_directory(argument, ignored));
}

std::vector<InputFile> case_inputs(const std::string& argument, const SelectionOptions& options) {
  if (argument == "-") return {{.name = "stdin", .path = kStdin}};
  if (is_json(argument)) return {};
  if (is_id(argument)) return matrix_inputs(options);
  return {{.name = argument, .path = argument}};
}

MatrixCase subject_of(const Item& found, const std::string& argument, const SelectionOptions& selection) {
  MatrixCase subject;
  if (is_id(argument)) subject = look_up(argument, selection).matrix_case;
  subject.id = found.id;
  if (const Case* const c = found.payload->attention()) subject.c = *c;
  return subject;
}

Item find_case(const std::string& argument, const SelectionOptions& selection, const Edits& edits,
               const ExecutionOptions& execution, const std::string& program) {
  constexpr const char* kJson = "the JSON of the command line";
  if (is_json(argument)) return read_item(parse_json_text(argument, kJson), kJson, edits, execution, program);
  if (is_id(argument)) return case_of_matrix(look_up(argument, selection), edits, execution, program);
  Item of_file = read_item(read_one_case(argument), argument, edits, execution, program);
  of_file.rerun = rerun_of_submit({program, "submit", argument}, edits, execution);
  return of_file;
}

}  // namespace cp_pool
