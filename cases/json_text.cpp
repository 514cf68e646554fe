#include "cases/json_text.h"

#include <algorithm>
#include <set>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "cases/case_error.h"
#include "cases/error_reason.h"
#include "cases/file_reader.h"

namespace cp_pool {
namespace {

// A first pass over the text, which finds mistakes that the library's parser accepts or reports without a position. The
// parser accepts a duplicate key (the last one wins), any depth, and an integer that no integer type holds (as a
// double). It reports a number out of range without a position.
class JsonChecker : public nlohmann::json_sax<Json> {
 public:
  JsonChecker(std::string_view text, std::string_view source, std::size_t first_line)
      : text_(text), source_(source), first_line_(first_line) {}

  // The library's parser takes a NUL byte for the end of the text and would ignore the rest.
  void expect_no_nul() const {
    if (const std::size_t nul = text_.find('\0'); nul != std::string_view::npos) fail_at(nul, "a NUL byte");
  }

  bool null() override { return value(); }
  bool boolean(bool /*unused*/) override { return value(); }
  bool number_integer(number_integer_t /*unused*/) override { return value(); }
  bool number_unsigned(number_unsigned_t /*unused*/) override { return value(); }
  bool number_float(number_float_t /*unused*/, const string_t& text) override {
    if (text.find_first_of(".eE") == std::string::npos) here().fail(fmt::format("{} does not fit into 64 bits", text));
    return value();
  }
  bool string(string_t& /*unused*/) override { return value(); }
  bool binary(binary_t& /*unused*/) override { return value(); }
  bool start_object(std::size_t /*unused*/) override { return enter(); }
  bool start_array(std::size_t /*unused*/) override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }

  bool key(string_t& name) override {
    Level& level = levels_.back();
    level.place = level.container.key(name);
    if (!level.keys.insert(name).second) level.place.fail("this key is given twice");
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*unused*/, const nlohmann::detail::exception& e) override {
    // The library's message begins with the name of its exception in brackets.
    std::string_view what = e.what();
    if (const auto end = what.find("] "); end != std::string_view::npos) what.remove_prefix(end + 2);
    if (const auto end = what.find(": "); what.starts_with("parse error at") && end != std::string_view::npos) {
      what.remove_prefix(end + 2);
    }
    // `position` counts the bytes read, the offending one among them.
    fail_at(position - std::min<std::size_t>(position, 1), what);
  }

 private:
  struct Level {
    JsonPlace container;
    JsonPlace place;  // of the next value
    std::size_t index = 0;
    std::set<std::string> keys;
  };

  [[noreturn]] void fail_at(std::size_t offset, std::string_view what) const {
    const std::string_view before = text_.substr(0, std::min(offset, text_.size()));
    const auto line = first_line_ + static_cast<std::size_t>(std::ranges::count(before, '\n'));
    const std::size_t newline = before.rfind('\n');
    const std::size_t column = before.size() - (newline == std::string_view::npos ? 0 : newline + 1) + 1;
    throw CaseError(fmt::format("{}:{}:{}: not JSON: {}", source_, line, column, what));
  }

  [[nodiscard]] JsonPlace here() const { return levels_.empty() ? JsonPlace(source_) : levels_.back().place; }

  bool value() {
    if (!levels_.empty()) {
      Level& level = levels_.back();
      level.place = level.container.index(++level.index);
    }
    return true;
  }

  bool enter() {
    constexpr std::size_t kDeepest = 64;
    if (levels_.size() == kDeepest) here().fail("nested more than 64 deep");
    const JsonPlace place = here();
    levels_.push_back({.container = place, .place = place.index(0), .index = 0, .keys = {}});
    return true;
  }

  bool leave() {
    levels_.pop_back();
    return value();
  }

  std::string_view text_;
  std::string_view source_;
  std::size_t first_line_;
  std::vector<Level> levels_;
};

}  // namespace

Json parse_json_text(std::string_view text, std::string_view source, std::size_t first_line) {
  JsonChecker checker(text, source, first_line);
  checker.expect_no_nul();
  Json::sax_parse(text, &checker);
  return Json::parse(text);
}

Json read_json_file(const std::string& path) {
  try {
    return parse_json_text(FileReader(path).read_all(), path);
  } catch (const std::system_error& e) {
    throw CaseError(fmt::format("{}: cannot be read: {}", path, error_reason(e.code(), path)));
  }
}

}  // namespace cp_pool
