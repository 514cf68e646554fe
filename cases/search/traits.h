// The traits of a case: the parts that one worker may refuse or compute wrongly and another one not.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"

namespace cp_pool::search {

// Returns the traits of a case, sorted, as a user reads them: "comm=a2a", "causal=true", "heads > kv_heads", "a window
// to the left". Names, booleans and numbers of ranks are traits with their value. A size that can be any number is a
// trait if it is not the default, or by its comparison with another size.
std::vector<std::string> traits_of(const Case& c);

// Returns the traits that the plainest case (bshd, fp32, equal sizes, no features) does not have, except those of
// numbers such as cp_size: a failure that needs a special trait needs it for any number of ranks.
std::vector<std::string> special_traits_of(const Case& c);

// Returns those of a case's traits that an adapter's reason for a skip names (Adapter.skip_reason of
// python/cp_pool/adapter.py); none if the reason has another form.
std::vector<std::string> traits_refused_by(std::string_view reason, const std::vector<std::string>& traits);

}  // namespace cp_pool::search
