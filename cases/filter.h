// Filters select cases by globs over IDs and expressions over fields, in one grammar.
//
//   expression := conjunction { '|' conjunction }
//   conjunction := negation { '&' negation }
//   negation := '!' negation | '(' expression ')' | term
//   term := FIELD OPERATOR VALUE        comm=p2p   heads>=8   model!=cp_3_*   tag=essential   window=512,0
//         | ID or a glob over IDs       te-flash/cp_1_0/p2p/cp2/thd/bf16/pad   te-flash/*/p2p/*   *thd*
//
// OPERATOR is = or !=, for numbers also < <= > >=. Fields are those of the JSON form of a case, and id, size, tag,
// world_size. A value is compared as text, with '*' and '?' as wildcards; '*' matches across '/'. A null field is
// "none", booleans are "true" and "false". arg.NAME is an argument of a call; a field of a case that is not one of
// suite, model, cp_size and world_size means the argument of that name. No comparison but != holds for what a call does
// not have, and for an argument of an attention case. tag=X holds if any tag of the case matches X, tag!=X if none
// does. Several filters of one command select the union of their cases; without a filter every case is selected.
//
// Keywords (`cp-pool run -k`) are the same grammar with additions that users of pytest know: `and`, `or` and `not`
// stand for & | !, and a word by itself matches any part of the ID or of a tag, in upper or lower case: 'p2p and not
// thd'.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "cases/call.h"
#include "cases/case.h"

namespace cp_pool {

// The facts of a case that a filter reads. The members refer to memory of the caller.
struct FilterSubject {
  const Case& c;
  std::span<const std::string> tags;
  std::string_view id;
  std::string_view size;
  // Set for a call. Of `c` then only suite, model and cp_size count; other fields of a case are read from the
  // arguments.
  const Call* call = nullptr;
};

class Filter {
 public:
  // The fields that an expression may use. Rules and excludes of a matrix apply before a case has an ID and a size.
  enum class Scope { everything, case_and_tags };

  // Throws CaseError for bad syntax, an unknown field, or a value that the field cannot have. The error's text shows
  // the expression with a caret under the place.
  static Filter parse(std::string_view expression, Scope scope = Scope::everything);
  // Parses keywords in the same way. A blank expression matches everything.
  static Filter parse_keywords(std::string_view expression);

  [[nodiscard]] bool matches(const FilterSubject& subject) const { return predicate_(subject); }

 private:
  using Predicate = std::function<bool(const FilterSubject&)>;
  friend class FilterParser;
  explicit Filter(Predicate predicate) : predicate_(std::move(predicate)) {}

  Predicate predicate_;
};

}  // namespace cp_pool
