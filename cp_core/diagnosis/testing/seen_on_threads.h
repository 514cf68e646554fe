// find_seen_keys on ranks that are threads of this process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cases/case.h"
#include "cp_core/diagnosis/seen_keys.h"

namespace cp_pool::diagnosis::test {

using MakeImplementation = std::function<std::unique_ptr<Implementation>()>;

// One answer a rank. Each rank has an implementation of its own.
std::vector<SeenKeys> seen_on_threads(const Case& c, const MakeImplementation& make, const Settings& settings = {});

// Of our own implementation, rank 0's answer.
SeenKeys seen_by_own(const Case& c);

// All that an answer says, a line each: pairs, then notes.
std::string text_of(const SeenKeys& seen);

}  // namespace cp_pool::diagnosis::test
