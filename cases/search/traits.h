// What a case consists of, as far as one worker might refuse it, or have one mistake in it, and another not.
#pragma once

#include <string>
#include <vector>

#include "cases/case.h"

namespace cp_pool::search {

// A part of a case, as a user reads it: "comm=a2a", "causal=true", "heads > kv_heads", "a window to the left". Names,
// truth values and numbers of ranks are traits with their value. Of what can be any number the trait is that it is not
// the default, and how it compares with another size. Sorted.
std::vector<std::string> traits_of(const Case& c);

// Those that the plainest case (bshd, fp32, equal sizes, no features) does not have, without numbers: a failure that
// needs one of these needs it whatever the number of ranks.
std::vector<std::string> special_traits_of(const Case& c);

}  // namespace cp_pool::search
