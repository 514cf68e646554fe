#include "driver/cli/select/edit.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_error.h"
#include "cases/did_you_mean.h"
#include "cases/json_place.h"
#include "cases/json_text.h"

namespace cp_pool {

namespace {

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

}  // namespace

Case edit_case(const Case& c, const std::vector<std::string>& edits) {
  if (edits.empty()) return c;
  return parse_case(edited(to_json(c), edits), fmt::format("--set {}", fmt::join(edits, " --set ")));
}

Case parse_edited_case(const Json& json, std::string_view source, const std::vector<std::string>& edits) {
  if (edits.empty()) return parse_case(json, source);
  expect_object(json, JsonPlace{source});
  return parse_case(edited(json, edits), fmt::format("{} with --set {}", source, fmt::join(edits, " --set ")));
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

std::vector<const CaseField*> edited_fields(const std::vector<std::string>& edits) {
  std::vector<const CaseField*> fields;
  fields.reserve(edits.size());
  for (const std::string& text : edits) fields.push_back(read_edit(text).field);
  return fields;
}

}  // namespace cp_pool
