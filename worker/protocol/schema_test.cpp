// Checks that docs/protocol.schema.json and docs/protocol.md list the same fields as the messages' fields().
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <variant>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/protocol/field_json.h"
#include "worker/protocol/messages.h"

namespace cp_pool::protocol {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;

std::string text_of(const std::string& page) {
  std::ifstream file{CP_POOL_SOURCE_DIR "/docs/" + page};
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class Schema {
 public:
  Schema() : whole_(json::parse(text_of("protocol.schema.json"))) {}

  // key: op or event.
  template <typename Message>
  void expect_message(const char* key) const {
    SCOPED_TRACE(Message::kName);
    const json& schema = whole_.at("$defs").at(Message::kName);
    EXPECT_EQ(schema.at("properties").at(key).at("const"), Message::kName);
    expect_fields<Message>(schema, {key});
  }

 private:
  template <typename Struct>
  void expect_fields(const json& schema, std::set<std::string> names) const {
    const json& properties = schema.at("properties");
    EXPECT_EQ(schema.at("additionalProperties"), false);
    for_each_field<Struct>([&](const auto& field) {
      SCOPED_TRACE(field.name);
      names.insert(field.name);
      if (field.presence == Presence::required) {
        EXPECT_THAT(schema.at("required"), Contains(field.name));
      }
      ASSERT_TRUE(properties.contains(field.name)) << "the schema lacks it";
      using FieldType = std::remove_cvref_t<decltype(field)>;
      expect_value<FieldValue<Struct, FieldType>>(resolved(properties.at(field.name)));
    });
    for (const auto& property : properties.items()) EXPECT_TRUE(names.contains(property.key())) << property.key();
  }

  template <typename T>
  void expect_value(const json& schema) const {
    if constexpr (HasFields<T>) {
      expect_fields<T>(schema, {});
    } else if constexpr (kIsOptional<T>) {
      expect_value<typename T::value_type>(schema.contains("oneOf") ? resolved(schema.at("oneOf").at(0)) : schema);
    } else if constexpr (kIsList<T>) {
      EXPECT_EQ(schema.at("type"), "array");
      expect_value<typename T::value_type>(resolved(schema.at("items")));
    } else if constexpr (std::is_same_v<T, CaseOutcome>) {
      std::set<std::string> said;
      for (const auto& [outcome, name] : kNames<CaseOutcome>) {
        if (is_of_a_worker(outcome)) said.emplace(name);
      }
      EXPECT_EQ(schema.at("enum").get<std::set<std::string>>(), said);
    } else if constexpr (std::is_enum_v<T>) {
      std::set<std::string> said;
      for (const auto& [value, name] : kNames<T>) said.emplace(name);
      EXPECT_EQ(schema.at("enum").get<std::set<std::string>>(), said);
    } else {
      EXPECT_THAT(types_of(schema), Contains(type_of<T>()));
    }
  }

  template <typename T>
  static std::string type_of() {
    if constexpr (std::is_same_v<T, bool>) {
      return "boolean";
    } else if constexpr (std::is_integral_v<T>) {
      return "integer";
    } else if constexpr (std::is_floating_point_v<T>) {
      return "number";
    } else {
      return std::is_same_v<T, std::string> ? "string" : "object";
    }
  }

  // Returns the JSON types that a schema allows. For a schema that lists values these are the types of the values.
  std::set<std::string> types_of(const json& schema) const {
    if (schema.contains("oneOf")) return types_of(resolved(schema.at("oneOf").at(0)));
    if (schema.contains("const")) return {schema.at("const").is_string() ? "string" : "integer"};
    if (schema.contains("enum")) return {"string"};
    const json& type = schema.at("type");
    return type.is_array() ? type.get<std::set<std::string>>() : std::set<std::string>{type.get<std::string>()};
  }

  const json& resolved(const json& schema) const {
    if (!schema.contains("$ref")) return schema;
    const auto ref = schema.at("$ref").get<std::string>();
    return whole_.at("$defs").at(ref.substr(ref.rfind('/') + 1));
  }

  json whole_;
};

template <typename Variant, std::size_t I = 0>
void expect_messages(const Schema& schema, const char* key) {
  if constexpr (I < std::variant_size_v<Variant>) {
    using Message = std::variant_alternative_t<I, Variant>;
    if constexpr (HasFields<Message>) schema.expect_message<Message>(key);
    expect_messages<Variant, I + 1>(schema, key);
  }
}

TEST(Schema, HasTheFieldsOfTheMessages) {
  const Schema schema;
  expect_messages<Request>(schema, "op");
  expect_messages<Event>(schema, "event");
}

// Returns the row of a table whose first cell is `name`.
std::string row_of(const std::string& page, const std::string& name) {
  const std::size_t begin = page.find(fmt::format("\n| `{}` |", name));
  if (begin == std::string::npos) return "";
  return page.substr(begin + 1, page.find('\n', begin + 1) - begin);
}

template <typename Struct>
void expect_row_with_fields(const std::string& page, const std::string& name) {
  const std::string row = row_of(page, name);
  for_each_field<Struct>(
      [&](const auto& field) { EXPECT_THAT(row, HasSubstr(fmt::format("`{}`", field.name))) << name; });
}

TEST(ProtocolPage, DescribesEveryFieldOfAResult) {
  const std::string whole = text_of("protocol.md");
  const std::string page = whole.substr(whole.find("\n### result\n"));
  for_each_field<ResultEvent>([&](const auto& field) {
    if (field.name != std::string{"seq"}) {
      EXPECT_NE(row_of(page, field.name), "") << field.name;
    }
  });
  expect_row_with_fields<RankResult>(page, "ranks");
  expect_row_with_fields<Check>(page, "checks");
  expect_row_with_fields<Hygiene>(page, "hygiene");
  expect_row_with_fields<LostOutput>(page, "lost_outputs");
  expect_row_with_fields<PerfResult>(page, "perf");
}

TEST(ProtocolPage, DescribesEveryFieldOfADiagnosis) {
  const std::string whole = text_of("protocol.md");
  const std::string page = whole.substr(whole.find("\n### diagnosis\n"));
  for_each_field<Diagnosis>([&](const auto& field) { EXPECT_NE(row_of(page, field.name), "") << field.name; });
  expect_row_with_fields<WrongPairs>(page, "pairs");
  expect_row_with_fields<PairRectangle>(page, "pairs");
  expect_row_with_fields<MaskPicture>(page, "picture");
  expect_row_with_fields<ErrorStrip>(page, "strips");
  for (const auto& [certainty, name] : kNames<Certainty>) {
    EXPECT_THAT(row_of(page, "certainty"), HasSubstr(fmt::format("`{}`", name)));
  }
}

TEST(ProtocolPage, NamesTheExitCodesOfAWorker) {
  const std::string page = text_of("protocol.md");
  EXPECT_THAT(row_of(page, "CP_POOL_PROTOCOL"), HasSubstr(fmt::format("exits with {} ", kExitNoCommonVersion)));
  EXPECT_THAT(row_of(page, "CP_POOL_DEVICE"), HasSubstr(fmt::format("exits with {} ", kExitNoDevice)));
  EXPECT_THAT(row_of(page, "CP_POOL_DEVICE"), HasSubstr(fmt::format("with {} ", kExitTooFewDevices)));
}

}  // namespace
}  // namespace cp_pool::protocol
