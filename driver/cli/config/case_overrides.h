// [[override]] of cp-pool.toml: what holds for some cases alone (docs/configuration.md).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cases/filter.h"
#include "cases/matrix.h"
#include "driver/cli/config/config_file.h"
#include "driver/run.h"

namespace cp_pool {

struct CaseOverride {
  Filter filter;
  std::optional<std::chrono::milliseconds> timeout;
  std::optional<ExpectedFailure> expected;
  std::optional<std::string> skip;  // the reason
};

// wrong: what is wrong with a value of the option of this key. is_told: whether the command line counts more than an
// override of it. Throws CommandError (usage) that names file, line and key.
std::vector<CaseOverride> read_overrides(
    const std::vector<ConfigTable>& tables,
    const std::function<std::string(const std::string& key, const std::string& value)>& wrong,
    const std::function<bool(const std::string& key)>& is_told);

// Of each thing that overrides say, the first whose filter selects the case counts.
void apply_overrides(const std::vector<CaseOverride>& overrides, const MatrixCase& of_matrix, NamedCase& named);

}  // namespace cp_pool
