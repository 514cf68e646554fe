#include "cases/case_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/did_you_mean.h"
#include "cases/json_text.h"

namespace cp_pool {
namespace {

template <typename T>
void read_value(const Json& json, const JsonPlace& place, T& out) {
  if constexpr (std::is_same_v<T, std::string>) {
    out = expect_string(json, place);
  } else if constexpr (std::is_enum_v<T>) {
    const std::optional<T> value = parse_name<T>(expect_string(json, place));
    if (!value) place.fail(fmt::format("{} is not {}", describe(json), list_names<T>()));
    out = *value;
  } else if constexpr (std::is_same_v<T, bool>) {
    out = expect_bool(json, place);
  } else if constexpr (std::is_floating_point_v<T>) {
    out = expect_number(json, place);
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    out = expect_uint64(json, place);
  } else {
    const std::int64_t value = expect_int64(json, place);
    if (!std::in_range<T>(value)) place.fail(fmt::format("{} does not fit into 32 bits", value));
    out = static_cast<T>(value);
  }
}

void read_value(const Json& json, const JsonPlace& place, std::array<std::int64_t, 2>& out) {
  if (expect_array(json, place).size() != out.size()) {
    place.fail(fmt::format("{} is not an array of 2: left, right", describe(json)));
  }
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = expect_int64(json[i], place.index(i));
}

void read_value(const Json& json, const JsonPlace& place, MaskSlice& out) {
  constexpr std::size_t kBorders = 4;
  if (expect_array(json, place).size() != kBorders + 1) {
    place.fail(
        fmt::format("{} is not a slice: first query, end of queries, first key, end of keys, type", describe(json)));
  }
  std::size_t i = 0;
  for (std::int64_t* border : {&out.queries.begin, &out.queries.end, &out.keys.begin, &out.keys.end}) {
    *border = expect_int64(json[i], place.index(i));
    ++i;
  }
  read_value(json[kBorders], place.index(kBorders), out.type);
}

template <typename T>
void read_value(const Json& json, const JsonPlace& place, std::vector<T>& out) {
  out.clear();
  for (const Json& element : expect_array(json, place)) {
    T value{};
    read_value(element, place.index(out.size()), value);
    out.push_back(std::move(value));
  }
}

// No mask is null.
void read_value(const Json& json, const JsonPlace& place, std::vector<MaskSlice>& out) {
  out.clear();
  if (json.is_null()) return;
  read_value<MaskSlice>(json, place, out);
  if (out.empty()) place.fail("a mask has at least one slice; null stands for no mask");
}

void read_value(const Json& json, const JsonPlace& place, Fp8& out) {
  expect_known_keys(json, place, {"scaling", "forward", "backward", "output"});
  const auto read = [&](const char* key, auto& member) {
    if (json.contains(key)) read_value(json[key], place.key(key), member);
  };
  read("scaling", out.scaling);
  read("forward", out.forward);
  read("backward", out.backward);
  read("output", out.output);
}

template <typename T>
void read_value(const Json& json, const JsonPlace& place, std::optional<T>& out) {
  out.reset();
  if (!json.is_null()) read_value(json, place, out.emplace());
}

// Writes a whole number without a fraction, 10 rather than 10.0, because IDs and filters spell it as users write it.
Json write_real(double value) {
  constexpr double kLargest = 1e15;  // well inside the range of int64, so that the cast cannot overflow
  if (std::abs(value) <= kLargest && std::trunc(value) == value) return static_cast<std::int64_t>(value);
  return value;
}

template <typename T>
Json write_value(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return to_string(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    return write_real(value);
  } else {
    return value;
  }
}

Json write_value(const std::vector<MaskSlice>& slices) {
  Json json;
  for (const auto& [queries, keys, type] : slices) {
    json.push_back({queries.begin, queries.end, keys.begin, keys.end, to_string(type)});
  }
  return json;
}

Json write_value(const Fp8& fp8) {
  return {{"scaling", to_string(fp8.scaling)},
          {"forward", fp8.forward},
          {"backward", fp8.backward},
          {"output", to_string(fp8.output)}};
}

// The text of FP8 in IDs and filters: the scaling, and what differs from FP8 in both directions.
std::string fp8_text(const Fp8& fp8) {
  return fmt::format("{}{}{}", to_string(fp8.scaling), fp8.backward ? "" : ",forward",
                     fp8.output == Fp8Output::fp8 ? ",output" : "");
}

template <typename T>
Json write_value(const std::optional<T>& value) {
  return value ? write_value(*value) : Json(nullptr);
}

constexpr std::string_view kNull = "none";

template <typename T>
struct Present {  // the type of a field's value that is not null
  using type = T;
};
template <typename T>
struct Present<std::optional<T>> {
  using type = T;
};

template <typename T>
constexpr CaseField::Kind kind_of() {
  using Kind = CaseField::Kind;
  if constexpr (std::is_enum_v<T>) {
    return Kind::name;
  } else if constexpr (std::is_same_v<T, bool>) {
    return Kind::boolean;
  } else if constexpr (std::is_integral_v<T>) {
    return Kind::number;
  } else if constexpr (std::is_floating_point_v<T>) {
    return Kind::real;
  } else {
    return std::is_same_v<T, std::string> ? Kind::text : Kind::list;
  }
}

template <typename T>
std::vector<std::string> names_of_type() {
  using Value = typename Present<T>::type;
  std::vector<std::string> names;
  if constexpr (std::is_enum_v<Value>) names = all_names<Value>();
  if (!names.empty() && !std::is_same_v<T, Value>) names.emplace_back(kNull);
  return names;
}

template <auto Member>
constexpr CaseField field(std::string_view name, bool required = false, bool in_version_1 = true) {
  using Type = std::remove_cvref_t<decltype(std::declval<Case>().*Member)>;
  return {.name = name,
          .kind = kind_of<typename Present<Type>::type>(),
          .required = required,
          .in_version_1 = in_version_1,
          .read = [](const Json& json, const JsonPlace& place, Case& c) { read_value(json, place, c.*Member); },
          .write = [](const Case& c) { return write_value(c.*Member); },
          .names = names_of_type<Type>};
}

constexpr std::array kFields{
    field<&Case::suite>("suite"),
    field<&Case::model>("model"),
    field<&Case::backend>("backend"),
    field<&Case::comm>("comm"),
    field<&Case::cp_size>("cp_size"),
    field<&Case::inner>("inner", /*required=*/false, /*in_version_1=*/false),
    field<&Case::layout>("layout"),
    field<&Case::dtype>("dtype"),
    field<&Case::batch>("batch"),
    field<&Case::seqlen_q>("seqlen_q", true),
    field<&Case::seqlen_kv>("seqlen_kv", true),
    field<&Case::heads>("heads", true),
    field<&Case::kv_heads>("kv_heads", true),
    field<&Case::head_dim_qk>("head_dim_qk", true),
    field<&Case::head_dim_v>("head_dim_v", true),
    field<&Case::causal>("causal"),
    field<&Case::window>("window"),
    field<&Case::chunk>("chunk"),
    field<&Case::mask>("mask", /*required=*/false, /*in_version_1=*/false),
    field<&Case::softcap>("softcap", /*required=*/false, /*in_version_1=*/false),
    field<&Case::softmax>("softmax"),
    field<&Case::bias>("bias"),
    field<&Case::max_logit>("max_logit"),
    field<&Case::seqlens>("seqlens"),
    field<&Case::seqlens_kv>("seqlens_kv"),
    field<&Case::pad_between_seqs>("pad_between_seqs"),
    field<&Case::training>("training"),
    field<&Case::deterministic>("deterministic"),
    field<&Case::fp8>("fp8", /*required=*/false, /*in_version_1=*/false),
    field<&Case::input_scale>("input_scale", /*required=*/false, /*in_version_1=*/false),
    field<&Case::score_offset>("score_offset", /*required=*/false, /*in_version_1=*/false),
    field<&Case::strided>("strided", /*required=*/false, /*in_version_1=*/false),
    field<&Case::replicated>("replicated", /*required=*/false, /*in_version_1=*/false),
    field<&Case::all_queries>("all_queries", /*required=*/false, /*in_version_1=*/false),
    field<&Case::group>("group", /*required=*/false, /*in_version_1=*/false),
    field<&Case::group_ranks>("group_ranks", /*required=*/false, /*in_version_1=*/false),
    field<&Case::group_lengths>("group_lengths", /*required=*/false, /*in_version_1=*/false),
    field<&Case::seed>("seed"),
};

}  // namespace

std::span<const CaseField> case_fields() {
  return kFields;
}

const CaseField* find_case_field(std::string_view name) {
  const auto* const found = std::ranges::find(kFields, name, &CaseField::name);
  return found == kFields.end() ? nullptr : found;
}

std::vector<std::string> case_field_names() {
  std::vector<std::string> names;
  names.reserve(kFields.size());
  for (const CaseField& field : kFields) names.emplace_back(field.name);
  return names;
}

std::vector<std::string_view> missing_sizes(const std::function<bool(std::string_view)>& has) {
  std::vector<std::string_view> missing;
  for (const CaseField& field : kFields) {
    if (field.required && !has(field.name)) missing.push_back(field.name);
  }
  return missing;
}

std::string field_text(const CaseField& field, const Case& c) {
  const Json value = field.write(c);
  if (value.is_null()) return std::string(kNull);
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object()) return fp8_text(*c.fp8);
  if (!value.is_array()) return value.dump();
  const auto text_of = [](const Json& element) {
    return element.is_string() ? element.get<std::string>() : element.dump();
  };
  std::string text;
  for (const Json& element : value) {
    if (!text.empty()) text += element.is_array() ? '+' : ',';
    if (!element.is_array()) text += text_of(element);
    for (std::size_t i = 0; element.is_array() && i < element.size(); ++i)
      text += (i > 0 ? "," : "") + text_of(element[i]);
  }
  return text;
}

Case parse_case(const Json& json, std::string_view source) {
  const JsonPlace root(source);
  Case c;
  for (const auto& [key, value] : expect_object(json, root)) {
    const CaseField* field = find_case_field(key);
    if (field == nullptr) fail_unknown_key(root, key, case_field_names());
    field->read(value, root.key(key), c);
  }
  const auto missing = missing_sizes([&json](std::string_view name) { return json.contains(name); });
  if (!missing.empty()) {
    const std::span others = std::span(missing).subspan(1);
    root.key(missing.front())
        .fail(fmt::format("this size is missing and has no default{}{}",
                          others.empty() ? "" : "; also missing: ", fmt::join(others, ", ")));
  }
  validate(c, source);
  return c;
}

Case parse_case_text(std::string_view text, std::string_view source) {
  return parse_case(parse_json_text(text, source), source);
}

Json to_json(const Case& c) {
  Json json = Json::object();
  for (const CaseField& field : kFields) json[std::string(field.name)] = field.write(c);
  return json;
}

Json short_json(const Case& c) {
  Json json = Json::object();
  for (const CaseField& field : kFields) {
    if (field.required || !is_default(field, c)) json[std::string(field.name)] = field.write(c);
  }
  return json;
}

bool is_default(const CaseField& field, const Case& c) {
  return field.write(c) == field.write(Case{});
}

Json to_json(const SequenceLengths& lengths) {
  return {{"valid_q", lengths.valid_q},
          {"padded_q", lengths.padded_q},
          {"valid_kv", lengths.valid_kv},
          {"padded_kv", lengths.padded_kv}};
}

void validate(const Case& c, std::string_view source) {
  if (const auto problem = find_problem(c)) JsonPlace(source, "$." + problem->field).fail(problem->message);
}

}  // namespace cp_pool
