#include "cases/filter.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <compare>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "cases/case_error.h"
#include "cases/case_groups.h"
#include "cases/case_json.h"
#include "cases/did_you_mean.h"
#include "cases/glob.h"
#include "cases/utf8.h"

namespace cp_pool {
namespace {

constexpr std::string_view kBlank = " \t\r\n";
constexpr std::string_view kOperatorStart = "=!<>";

// Returns invalid_argument for a text that is not a finite number, and result_out_of_range for one that is too large.
template <typename Number>
std::errc read_number(std::string_view text, Number& value) {
  const char* const end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data(), end, value);
  return read == end && std::isfinite(static_cast<double>(value)) ? error : std::errc::invalid_argument;
}

// Returns a field of a case, or world_size, which is computed from the fields cp_size and group. Null for other names.
const CaseField* find_field(std::string_view name) {
  static const CaseField ranks = [] {
    CaseField field = *find_case_field("cp_size");
    field.name = "world_size";
    field.write = [](const Case& c) { return Json(world_size(c)); };
    return field;
  }();
  return name == ranks.name ? &ranks : find_case_field(name);
}

// Returns the argument of that name; null if the case is no call that has it.
const Json* argument(const FilterSubject& subject, std::string_view name) {
  if (subject.call == nullptr) return nullptr;
  const auto found = subject.call->arguments.find(name);
  return found == subject.call->arguments.end() ? nullptr : &*found;
}

// Whether the field of a call is an argument.
bool is_argument(const FilterSubject& subject, const CaseField& field) {
  constexpr std::array<std::string_view, 4> kOfACall{"suite", "model", "cp_size", "world_size"};
  return subject.call != nullptr && std::ranges::find(kOfACall, field.name) == kOfACall.end();
}

bool is_numeric(const CaseField& field) {
  return field.kind == CaseField::Kind::number || field.kind == CaseField::Kind::real;
}

// `field` is of Kind::number. The seed may exceed int64.
std::strong_ordering compare_number(const CaseField& field, const Case& c, std::int64_t value) {
  const Json number = field.write(c);
  if (!number.is_number_unsigned()) return number.get<std::int64_t>() <=> value;
  if (value < 0) return std::strong_ordering::greater;
  return number.get<std::uint64_t>() <=> static_cast<std::uint64_t>(value);
}

bool holds(std::partial_ordering order, std::string_view op) {
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  if (op == ">") return order > 0;
  return order >= 0;
}

std::vector<std::string> known_fields(Filter::Scope scope) {
  std::vector<std::string> fields = case_field_names();
  fields.insert(fields.end(), {"world_size", "tag"});
  if (scope == Filter::Scope::everything) fields.insert(fields.end(), {"id", "size"});
  return fields;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// Replaces each control character by a blank. A NUL would end the text of an exception, a newline or escape would spoil
// its form.
std::string without_controls(std::string_view text) {
  std::string out(text);
  std::ranges::replace_if(out, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return out;
}

}  // namespace

class FilterParser {
 public:
  enum class Grammar { filter, keywords };

  FilterParser(std::string_view text, Filter::Scope scope, Grammar grammar = Grammar::filter)
      : text_(text), scope_(scope), keywords_(grammar == Grammar::keywords) {}

  Filter parse() {
    if (keywords_ && text_.find_first_not_of(kBlank) == std::string_view::npos) {
      return Filter([](const FilterSubject&) { return true; });
    }
    Predicate predicate = expression();
    skip_blank();
    if (at_ < text_.size()) {
      const char* const expected = keywords_ ? "expected 'and' or 'or' here" : "expected & or | here";
      fail(at_, text_[at_] == ')' ? "this parenthesis closes nothing" : expected);
    }
    return Filter(std::move(predicate));
  }

 private:
  using Predicate = Filter::Predicate;

  struct Word {
    std::size_t at;
    std::string text;
  };

  [[noreturn]] void fail(std::size_t at, std::string_view message) const {
    const std::string shown = without_controls(text_);
    // The caret's column counts characters, not bytes: continuation bytes of UTF-8 take no column.
    const auto columns = std::ranges::count_if(shown.substr(0, at), starts_code_point);
    throw CaseError(fmt::format("bad {}: {}\n  {}\n  {:>{}}", keywords_ ? "-k" : "filter", without_controls(message),
                                shown, '^', columns + 1));
  }

  void skip_blank() { at_ = std::min(text_.find_first_not_of(kBlank, at_), text_.size()); }

  bool accept(char symbol) {
    skip_blank();
    if (at_ == text_.size() || text_[at_] != symbol) return false;
    ++at_;
    return true;
  }

  // Accepts the symbol, or with keywords the word of pytest that stands for it.
  bool accept(char symbol, std::string_view name) {
    if (accept(symbol)) return true;
    if (!keywords_ || !is_next_word(name)) return false;
    at_ += name.size();
    return true;
  }

  // Whether `name` comes next as a word of its own, in upper or lower case.
  [[nodiscard]] bool is_next_word(std::string_view name) const {
    const std::string_view rest = text_.substr(at_);
    constexpr std::string_view kEnds = "&|()! \t\r\n";
    return lower(rest.substr(0, name.size())) == name &&
           (rest.size() == name.size() || kEnds.find(rest[name.size()]) != std::string_view::npos);
  }

  // Parses operands that the symbol or the word joins. all: every operand has to hold, not just any.
  Predicate joined(Predicate (FilterParser::*rule)(), char symbol, std::string_view word, bool all) {
    std::vector<Predicate> operands{(this->*rule)()};
    while (accept(symbol, word)) operands.push_back((this->*rule)());
    if (operands.size() == 1) return std::move(operands.front());
    return [operands = std::move(operands), all](const FilterSubject& s) {
      const auto matches = [&s](const Predicate& operand) { return operand(s); };
      return all ? std::ranges::all_of(operands, matches) : std::ranges::any_of(operands, matches);
    };
  }
  Predicate expression() { return joined(&FilterParser::conjunction, '|', "or", /*all=*/false); }
  Predicate conjunction() { return joined(&FilterParser::negation, '&', "and", /*all=*/true); }

  Predicate negation() {
    if (accept('!', "not")) {
      return [inner = nested(&FilterParser::negation)](const FilterSubject& s) { return !inner(s); };
    }
    if (accept('(')) {
      const std::size_t open = at_ - 1;
      Predicate inner = nested(&FilterParser::expression);
      if (!accept(')')) fail(open, "this parenthesis is not closed");
      return inner;
    }
    return term();
  }

  // Parses one level deeper. The depth is bounded, because each level takes space on the stack.
  Predicate nested(Predicate (FilterParser::*rule)()) {
    constexpr int kDeepest = 100;
    if (++depth_ > kDeepest) fail(at_, "nested too deep");
    Predicate predicate = (this->*rule)();
    --depth_;
    return predicate;
  }

  // Reads a name or value, which ends before a blank, a parenthesis or an operator. After a '/' or '*' the word is an
  // ID or a glob over IDs, which may contain '='.
  Word word() {
    skip_blank();
    const std::size_t start = at_;
    std::string_view ends = "&|()!<>= \t\r\n";
    while (at_ < text_.size() && ends.find(text_[at_]) == std::string_view::npos) {
      if (text_[at_] == '/' || text_[at_] == '*') ends = "&|()!<> \t\r\n";
      ++at_;
    }
    return {.at = start, .text = std::string(text_.substr(start, at_ - start))};
  }

  Predicate term() {
    const Word name = word();
    const bool is_operator = keywords_ && (lower(name.text) == "and" || lower(name.text) == "or");
    if (name.text.empty() || is_operator) {
      fail(name.at, keywords_ ? "expected a part of an ID or FIELD=VALUE here"
                              : "expected FIELD=VALUE, an ID or a glob over IDs here");
    }
    skip_blank();
    if (at_ < text_.size() && kOperatorStart.find(text_[at_]) != std::string_view::npos) return comparison(name);
    return keywords_ ? part_of_name(name) : id_glob(name);
  }

  static Predicate part_of_name(const Word& part) {
    return [glob = lower("*" + part.text + "*")](const FilterSubject& s) {
      const auto matches = [&glob](std::string_view name) { return glob_matches(glob, lower(name)); };
      return matches(s.id) || std::ranges::any_of(s.tags, matches);
    };
  }

  Predicate id_glob(const Word& glob) {
    if (scope_ != Filter::Scope::everything) fail(glob.at, "IDs cannot be used here; use FIELD=VALUE");
    if (glob.text.find_first_of("/*") == std::string::npos) {
      if (std::ranges::count(known_fields(scope_), glob.text) > 0) {
        fail(glob.at, fmt::format("'{}' is a field: it needs a value, as in {}=VALUE", glob.text, glob.text));
      }
      fail(glob.at, fmt::format("'{}' is neither FIELD=VALUE nor an ID (suite/model/..) nor a glob with *{}", glob.text,
                                did_you_mean(glob.text, known_fields(scope_))));
    }
    return [glob = glob.text](const FilterSubject& s) { return glob_matches(glob, s.id); };
  }

  Predicate comparison(const Word& name) {
    const std::size_t op_at = at_;
    std::string op(1, text_[at_++]);
    if (at_ < text_.size() && op != "=" && text_[at_] == '=') op += text_[at_++];
    if (op == "!") fail(op_at, "expected != or & here");
    const Word value = word();
    if (value.text.empty()) fail(at_, "expected a value here");
    if (op == "=" || op == "!=") {
      Predicate equal = equality(name, value);
      if (op == "=") return equal;
      return [equal = std::move(equal)](const FilterSubject& s) { return !equal(s); };
    }
    if (const std::string arg = argument_name(name); !arg.empty())
      return compared_argument(arg, op, parsed<double>(value));
    const CaseField* field = find_field(name.text);
    if (field == nullptr) expect_known_field(name);
    if (field == nullptr || !is_numeric(*field)) {
      fail(op_at, fmt::format("{} is not a number: use = or !=", name.text));
    }
    const auto number = parsed<double>(value);
    const bool whole = field->kind == CaseField::Kind::number;
    return [field, op, whole, of_call = compared_argument(std::string(field->name), op, number), number,
            exact = whole ? parsed<std::int64_t>(value) : 0](const FilterSubject& s) {
      if (is_argument(s, *field)) return of_call(s);
      if (whole) return holds(compare_number(*field, s.c, exact), op);
      return holds(field->write(s.c).get<double>() <=> number, op);
    };
  }

  Predicate equality(const Word& name, const Word& value) {
    const std::string& glob = value.text;
    if (const std::string arg = argument_name(name); !arg.empty()) return equal_argument(arg, glob);
    if (const CaseField* field = find_field(name.text)) {
      return [field, of_call = equal_argument(std::string(field->name), glob),
              glob = possible_value(*field, value)](const FilterSubject& s) {
        if (is_argument(s, *field)) return of_call(s);
        return glob_matches(glob, field_text(*field, s.c));
      };
    }
    if (name.text == "tag") {
      return [glob](const FilterSubject& s) {
        return std::ranges::any_of(s.tags, [&glob](const std::string& tag) { return glob_matches(glob, tag); });
      };
    }
    expect_known_field(name);
    if (name.text == "id") return [glob](const FilterSubject& s) { return glob_matches(glob, s.id); };
    return [glob](const FilterSubject& s) { return glob_matches(glob, s.size); };
  }

  // Returns NAME of arg.NAME; empty for another name.
  static std::string argument_name(const Word& name) {
    constexpr std::string_view kArgument = "arg.";
    return name.text.starts_with(kArgument) ? name.text.substr(kArgument.size()) : "";
  }

  static Predicate equal_argument(std::string name, std::string glob) {
    return [name = std::move(name), glob = std::move(glob)](const FilterSubject& s) {
      const Json* const value = argument(s, name);
      return value != nullptr && glob_matches(glob, argument_text(*value));
    };
  }

  static Predicate compared_argument(std::string name, std::string op, double number) {
    return [name = std::move(name), op = std::move(op), number](const FilterSubject& s) {
      const Json* const value = argument(s, name);
      return value != nullptr && value->is_number() && holds(value->get<double>() <=> number, op);
    };
  }

  void expect_known_field(const Word& name) const {
    const std::vector<std::string> known = known_fields(scope_);
    if (std::ranges::find(known, name.text) != known.end()) return;
    fail(name.at,
         fmt::format("unknown field '{}'{} (known: {})", name.text, did_you_mean(name.text, known), join_names(known)));
  }

  // Returns the value as text to match against. A value that the field can never have is refused, because it would
  // select nothing silently.
  [[nodiscard]] std::string possible_value(const CaseField& field, const Word& value) const {
    if (field.kind == CaseField::Kind::number && !has_wildcard(value.text)) {
      // Drops leading zeros. Only the seed can exceed int64.
      std::uint64_t large = 0;
      if (read_number(value.text, large) == std::errc()) return std::to_string(large);
      return std::to_string(parsed<std::int64_t>(value));
    }
    if (field.kind == CaseField::Kind::real && !has_wildcard(value.text)) {
      Case c;
      field.read(parsed<double>(value), JsonPlace(""), c);
      return field_text(field, c);
    }
    std::vector<std::string> names = field.names();
    if (field.kind == CaseField::Kind::boolean) names = {"true", "false"};
    const auto possible = [&value](const std::string& name) { return glob_matches(value.text, name); };
    if (!names.empty() && std::ranges::none_of(names, possible)) {
      fail(value.at, fmt::format("{} is never '{}'{} (values: {})", field.name, value.text,
                                 did_you_mean(value.text, names), join_names(names)));
    }
    return value.text;
  }

  template <typename Number>
  [[nodiscard]] Number parsed(const Word& value) const {
    Number number{};
    const std::errc error = read_number(value.text, number);
    constexpr const char* kTooLarge =
        std::is_integral_v<Number> ? "does not fit into 64 bits" : "is too large a number";
    if (error == std::errc::result_out_of_range) fail(value.at, fmt::format("'{}' {}", value.text, kTooLarge));
    if (error != std::errc()) fail(value.at, fmt::format("'{}' is not a number", value.text));
    return number;
  }

  std::string_view text_;
  Filter::Scope scope_;
  bool keywords_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

Filter Filter::parse(std::string_view expression, Scope scope) {
  return FilterParser(expression, scope).parse();
}

Filter Filter::parse_keywords(std::string_view expression) {
  return FilterParser(expression, Scope::everything, FilterParser::Grammar::keywords).parse();
}

}  // namespace cp_pool
