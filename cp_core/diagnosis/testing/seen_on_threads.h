// Runs find_seen_keys on ranks that are threads of this process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cases/case.h"
#include "cp_core/diagnosis/seen_keys.h"

namespace cp_pool::diagnosis::test {

using MakeImplementation = std::function<std::unique_ptr<Implementation>()>;

// Returns one answer per rank. Runs `make` once on each rank.
std::vector<SeenKeys> seen_on_threads(const Case& c, const MakeImplementation& make, const Settings& settings = {},
                                      bool trusts_lse = true);

// Returns rank 0's answer for our own implementation.
SeenKeys seen_by_own(const Case& c);

// Returns all sentences of an answer, one per line: pairs, then notes.
std::string text_of(const SeenKeys& seen);

}  // namespace cp_pool::diagnosis::test
