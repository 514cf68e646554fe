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

struct Edit {
  const CaseField* field;
  std::string_view value;
};

Edit read_edit(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) throw CaseError(fmt::format("--set {}: it is not KEY=VALUE", text));
  const std::string key = text.substr(0, equals);
  const CaseField* field = find_case_field(key);
  if (field == nullptr) {
    throw CaseError(
        fmt::format("--set {}: a case has no field '{}'{}", text, key, did_you_mean(key, case_field_names())));
  }
  return {.field = field, .value = std::string_view{text}.substr(equals + 1)};
}

// Text that is no JSON is taken for a name. JSON is read as strictly as in a file.
Json as_json(std::string_view text, std::string_view source) {
  if (text == "none") return nullptr;
  const auto parse = [&](const std::string& json) {
    return Json::accept(json) ? parse_json_text(json, source) : Json(Json::value_t::discarded);
  };
  if (Json value = parse(std::string{text}); !value.is_discarded()) return value;
  if (text.find(',') != std::string_view::npos) {
    if (Json list = parse(fmt::format("[{}]", text)); !list.is_discarded()) return list;
  }
  return text;
}

Json value_for(const CaseField& field, std::string_view text, std::string_view source) {
  using Kind = CaseField::Kind;
  // A name that looks like a number (a suite called 1) is still a name, and a number may stand for a list of one.
  const bool is_name = field.kind == Kind::text || field.kind == Kind::name;
  if (is_name && text.find_first_not_of("0123456789.eE+-") == std::string_view::npos) return text;
  Json value = as_json(text, source);
  if (value.is_number() && field.kind == Kind::list) return Json::array({value});
  return value;
}

// Returns the field with its new value in the form that a case has in JSON.
search::FixedField fixed_field(const std::string& text) {
  const Edit edit = read_edit(text);
  const std::string source = fmt::format("--set {}", text);
  Case c;  // reads the value, which checks it
  edit.field->read(value_for(*edit.field, edit.value, source), JsonPlace{source}.key(edit.field->name), c);
  return {.field = edit.field, .value = edit.field->write(c)};
}

Json edited(const Json& json, const std::vector<std::string>& edits) {
  Json result = json;
  for (const std::string& text : edits) {
    search::FixedField fixed = fixed_field(text);
    result[std::string{fixed.field->name}] = std::move(fixed.value);
  }
  return result;
}

constexpr std::size_t kHashDigits = 10;  // among a hundred thousand cases two share a hash with a probability of 0.5 %
constexpr std::size_t kLongestId = 1000;

// Returns a hash of the fields that differ from their default, so that a new field in a later version changes no hash.
std::string short_hash(const Case& c) {
  const Case by_default;
  Json special = Json::object();
  for (const CaseField& field : case_fields()) {
    Json value = field.write(c);
    if (value != field.write(by_default)) special[std::string{field.name}] = std::move(value);
  }
  return text_hash(special.dump()).substr(0, kHashDigits);
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

// Returns the fields that the edits name, for an ID that distinguishes the edited case.
std::vector<const CaseField*> edited_fields(const std::vector<std::string>& edits) {
  return mapped(edits, [](const std::string& text) { return read_edit(text).field; });
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
  Item submitted{.id = {}, .payload = parse_call(json.at("call"), root.source() + ", call")};
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

Item case_of_file(const std::string& file, const Edits& edits, const ExecutionOptions& execution,
                  const std::string& program) {
  Item item = read_submitted_case(read_one_case(file), file, edits);
  item.rerun = rerun_of_submit({program, "submit", file}, edits, execution);
  set_worker_of_call(execution.worker, execution.fork != "off", item);
  return item;
}

Item case_of_matrix(const SelectedCase& selected, const Edits& edits, const ExecutionOptions& execution,
                    const std::string& program) {
  const MatrixCase& c = selected.matrix_case;
  if (c.call && !edits.empty()) throw CaseError(fmt::format("--set changes attention cases, and {} is a call", c.id));
  if (edits.empty()) return item_of(selected, program, execution);
  const Case edited = parse_edited_case(to_json(c.c), "", edits);
  return {.id = case_id(edited, edited_fields(edits)),
          .payload = edited,
          .rerun = rerun_of_submit({program, "submit", c.id, "--matrix", selected.matrix, "--size", c.size}, edits,
                                   execution)};
}

// Looks in the shipped matrix that is named like the suite with which the ID begins, so that the others need not be
// expanded.
std::optional<SelectedCase> find_in_suite(const std::string& id, SelectionOptions options) {
  const std::string suite = id.substr(0, id.find('/'));
  if (std::ranges::count(shipped_matrices(), suite) == 0) return std::nullopt;
  options.matrices = {suite};
  for (SelectedCase& selected : select_cases(options).cases) {
    if (selected.matrix_case.id == id) return std::move(selected);
  }
  return std::nullopt;
}

SelectedCase look_up(const std::string& id, SelectionOptions options) {
  options.filters = {"*"};  // includes the optional cases
  if (options.matrices.empty()) {
    if (auto found = find_in_suite(id, options)) return *std::move(found);
    options.matrices = shipped_matrices();
  }
  const Selection selection = select_cases(options);
  std::vector<std::string> ids;
  for (const SelectedCase& selected : selection.cases) {
    if (selected.matrix_case.id == id) return selected;
    ids.push_back(selected.matrix_case.id);
  }
  throw CaseError(fmt::format("there is no file and no case '{}' in {} (size {}){}", id, selection.title, options.size,
                              did_you_mean(id, ids)));
}

}  // namespace

Case parse_edited_case(const Json& json, std::string_view source, const std::vector<std::string>& edits) {
  if (edits.empty()) return parse_case(json, source);
  expect_object(json, JsonPlace{source});
  return parse_case(edited(json, edits),
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
  return {.id = id == json.end() ? fmt::format("{}/hash={}", case_id(c, edited_fields(edits)), short_hash(c))
                                 : given_id(*id, root.key("id")) + edited_parts(c, edits),
          .payload = c};
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
  return case_of_file(argument, edits, execution, program);
}

}  // namespace cp_pool
