// Tests that docs/service.schema.json agrees with the fields() of the messages, and that docs/service.md names every
// message.
#include <fstream>
#include <sstream>
#include <type_traits>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "cases/enum_names.h"
#include "driver/service/messages.h"
#include "worker/protocol/field_json.h"

namespace cp_pool::service {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

std::string page_text(const std::string& page) {
  std::ifstream file{CP_POOL_SOURCE_DIR "/docs/" + page};
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

template <HasFields Struct>
ordered_json schema_of_struct(ordered_json properties, ordered_json required);

template <typename T>
ordered_json schema_of() {
  if constexpr (std::is_same_v<T, Payload>) {
    return {{"type", "object"}, {"description", "a case, as docs/matrix_format.md has its keys"}};
  } else if constexpr (std::is_same_v<T, nlohmann::json>) {
    return {{"type", "object"}, {"description", "an event, as docs/events.md has it"}};
  } else if constexpr (HasFields<T>) {
    return schema_of_struct<T>(ordered_json::object(), ordered_json::array());
  } else if constexpr (protocol::kIsOptional<T>) {
    return schema_of<typename T::value_type>();
  } else if constexpr (protocol::kIsList<T>) {
    return {{"type", "array"}, {"items", schema_of<typename T::value_type>()}};
  } else if constexpr (std::is_same_v<T, OutcomeCounts>) {
    return {{"type", "object"}, {"additionalProperties", {{"type", "integer"}}}};
  } else if constexpr (std::is_enum_v<T>) {
    return {{"enum", all_names<T>()}};
  } else if constexpr (std::is_same_v<T, bool>) {
    return {{"type", "boolean"}};
  } else if constexpr (std::is_integral_v<T>) {
    return {{"type", "integer"}};
  } else if constexpr (std::is_floating_point_v<T> || std::is_same_v<T, std::chrono::milliseconds>) {
    return {{"type", "number"}};
  } else {
    static_assert(std::is_same_v<T, std::string> || std::is_same_v<T, std::filesystem::path>);
    return {{"type", "string"}};
  }
}

template <HasFields Struct>
ordered_json schema_of_struct(ordered_json properties, ordered_json required) {
  for_each_field<Struct>([&](const auto& field) {
    using FieldType = std::remove_cvref_t<decltype(field)>;
    using Value = FieldValue<Struct, FieldType>;
    properties[field.name] = schema_of<Value>();
    if constexpr (std::is_same_v<Value, Payload>) {  // required under one of two keys
      properties["call"] = {{"type", "object"},
                            {"description", "instead of a case: a call, as docs/functions.md has it"}};
      return;
    }
    if (field.presence == Presence::required) required.push_back(field.name);
  });
  return {{"type", "object"}, {"properties", properties}, {"required", required}, {"additionalProperties", false}};
}

template <typename Variant, std::size_t I = 0>
void add_messages(const char* key, ordered_json& defs, ordered_json& choices) {
  if constexpr (I < std::variant_size_v<Variant>) {
    using Message = std::variant_alternative_t<I, Variant>;
    const std::string name = fmt::format("{}_{}", key, Message::kName);
    defs[name] = schema_of_struct<Message>({{key, {{"const", Message::kName}}}}, {key});
    choices.push_back({{"$ref", "#/$defs/" + name}});
    add_messages<Variant, I + 1>(key, defs, choices);
  }
}

ordered_json whole_schema() {
  ordered_json requests = ordered_json::array();
  ordered_json replies = ordered_json::array();
  ordered_json defs = ordered_json::object();
  add_messages<Request>("request", defs, requests);
  add_messages<Reply>("reply", defs, replies);
  defs["request"] = {{"oneOf", requests}};
  defs["reply"] = {{"oneOf", replies}};
  return {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
          {"title", "A line between a client and cp-pool serve"},
          {"description", "docs/service.md describes the messages. A reader passes over fields that it does not know."},
          {"oneOf", {{{"$ref", "#/$defs/request"}}, {{"$ref", "#/$defs/reply"}}}},
          {"$defs", defs}};
}

TEST(ServiceSchema, IsMadeOfTheFieldsOfTheMessages) {
  const std::string expected = whole_schema().dump(1) + '\n';
  EXPECT_EQ(page_text("service.schema.json"), expected) << "docs/service.schema.json has to be:\n" << expected;
}

template <typename Variant, std::size_t I = 0>
void expect_rows(const std::string& page) {
  if constexpr (I < std::variant_size_v<Variant>) {
    EXPECT_THAT(page, HasSubstr(fmt::format("\n| `{}` |", std::variant_alternative_t<I, Variant>::kName)));
    expect_rows<Variant, I + 1>(page);
  }
}

TEST(ServicePage, NamesEveryMessage) {
  const std::string page = page_text("service.md");
  expect_rows<Request>(page);
  expect_rows<Reply>(page);
}

}  // namespace
}  // namespace cp_pool::service
