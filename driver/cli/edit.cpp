#include "driver/cli/edit.h"

#include <string_view>

#include <fmt/format.h>

#include "cases/case_error.h"
#include "cases/did_you_mean.h"
#include "cases/json_place.h"

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

Json as_json(std::string_view text) {
  if (text == "none") return nullptr;
  const auto parse = [](const std::string& json) { return Json::parse(json, nullptr, /*allow_exceptions=*/false); };
  if (Json value = parse(std::string{text}); !value.is_discarded()) return value;
  if (text.find(',') != std::string_view::npos) {
    if (Json list = parse(fmt::format("[{}]", text)); !list.is_discarded()) return list;
  }
  return text;
}

}  // namespace

Case edit_case(Case c, const std::vector<std::string>& edits) {
  for (const std::string& text : edits) {
    const Edit edit = read_edit(text);
    const JsonPlace place{fmt::format("--set {}", text)};
    // A name that happens to be JSON (a suite called 1) is still a name: the text is tried where the JSON does not fit.
    try {
      edit.field->read(as_json(edit.value), place.key(edit.field->name), c);
    } catch (const CaseError&) {
      if (!as_json(edit.value).is_number()) throw;
      edit.field->read(Json(std::string{edit.value}), place.key(edit.field->name), c);
    }
  }
  if (!edits.empty()) validate(c, "--set");
  return c;
}

std::vector<const CaseField*> edited_fields(const std::vector<std::string>& edits) {
  std::vector<const CaseField*> fields;
  fields.reserve(edits.size());
  for (const std::string& text : edits) fields.push_back(read_edit(text).field);
  return fields;
}

}  // namespace cp_pool
