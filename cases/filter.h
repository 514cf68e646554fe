// Which cases: globs over IDs and expressions over fields, in one grammar.
//
//   expression := conjunction { '|' conjunction }
//   conjunction := negation { '&' negation }
//   negation := '!' negation | '(' expression ')' | term
//   term := FIELD OPERATOR VALUE        comm=p2p   heads>=8   model!=cp_3_*   tag=essential   window=512,0
//         | ID or a glob over IDs       te-flash/cp_1_0/p2p/cp2/thd/bf16/pad   te-flash/*/p2p/*   *thd*
//
// OPERATOR is = or !=, and for numbers < <= > >= too. Fields are those of the JSON form of a case, and id, size, tag,
// world_size. A value is compared as text, with '*' and '?' as wildcards; '*' matches across '/'. A null field is
// "none", booleans are "true" and "false". tag=X holds if any tag of the case matches X, tag!=X if none does.
// Several filters given to a command select the union of what each selects; none at all selects everything.
//
// Keywords (`cp-pool run -k`) are the same grammar with what users of pytest know: `and`, `or` and `not` stand for
// & | !, and a word by itself is any part of the ID or of a tag, whatever its case: 'p2p and not thd'.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"

namespace cp_pool {

// The facts of a case that a filter reads. Views into memory that the caller keeps.
struct FilterSubject {
  const Case& c;
  std::span<const std::string> tags;
  std::string_view id;
  std::string_view size;
};

class Filter {
 public:
  // What an expression may ask about. Rules and excludes of a matrix choose before there is an ID and a size.
  enum class Scope { everything, case_and_tags };

  // Throws CaseError for bad syntax, an unknown field, or a value that the field cannot have. Its text holds the
  // expression and a caret under the place.
  static Filter parse(std::string_view expression, Scope scope = Scope::everything);
  // The same for keywords. A blank expression matches everything.
  static Filter parse_keywords(std::string_view expression);

  [[nodiscard]] bool matches(const FilterSubject& subject) const { return predicate_(subject); }

 private:
  using Predicate = std::function<bool(const FilterSubject&)>;
  friend class FilterParser;
  explicit Filter(Predicate predicate) : predicate_(std::move(predicate)) {}

  Predicate predicate_;
};

}  // namespace cp_pool
