#include "cases/call.h"

#include <fmt/format.h>

#include "cases/text_hash.h"

namespace cp_pool {

namespace {

constexpr std::string_view kPythonFile = ".py";
constexpr std::int64_t kMostRanks = 1 << 16;

// Throws CaseError unless the text has the form of Call::function.
void expect_function(const std::string& text, const JsonPlace& place) {
  const std::size_t colon = text.rfind(':');
  const bool named = colon != std::string::npos && colon > 0 && colon + 1 < text.size();
  if (!named || text.find_first_of(" \t\n") != std::string::npos) {
    place.fail(fmt::format("{} is neither package.module:name nor FILE.py:name", describe(text)));
  }
}

}  // namespace

int expect_ranks(const Json& json, const JsonPlace& place) {
  const std::int64_t ranks = expect_int64(json, place);
  if (ranks < 1 || ranks > kMostRanks) place.fail(fmt::format("{} is no number of ranks", ranks));
  return static_cast<int>(ranks);
}

Call read_call(const Json& json, const JsonPlace& place, const char* function) {
  Call call;
  call.function = expect_string(json.at(function), place.key(function));
  expect_function(call.function, place.key(function));
  if (json.contains("arguments")) {
    expect_object(json.at("arguments"), place.key("arguments"));
    call.arguments = json.at("arguments");
  }
  if (json.contains("cp_size")) call.cp_size = expect_ranks(json.at("cp_size"), place.key("cp_size"));
  return call;
}

Call parse_call(const Json& json, std::string_view source) {
  const JsonPlace root(source);
  expect_known_keys(json, root, {"function", "arguments", "cp_size"});
  if (!json.contains("function")) root.fail("'function' is missing");
  return read_call(json, root, "function");
}

Json to_json(const Call& call) {
  return {{"function", call.function}, {"arguments", call.arguments}, {"cp_size", call.cp_size}};
}

std::string argument_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string_view module_of(const Call& call) {
  std::string_view module = std::string_view(call.function).substr(0, call.function.rfind(':'));
  if (!module.ends_with(kPythonFile)) return module;
  module.remove_suffix(kPythonFile.size());
  return module.substr(module.rfind('/') + 1);  // npos + 1 = 0
}

std::string_view name_of(const Call& call) {
  return std::string_view(call.function).substr(call.function.rfind(':') + 1);
}

std::string call_id(const Call& call) {
  constexpr std::size_t kHashDigits = 10;
  return fmt::format(
      "{}/{}/cp{}/hash={}", module_of(call), name_of(call), call.cp_size,
      text_hash(to_json(call).dump(-1, ' ', false, Json::error_handler_t::replace)).substr(0, kHashDigits));
}

}  // namespace cp_pool
