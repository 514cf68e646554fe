#include "driver/cli/injected_faults.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "cases/glob.h"
#include "driver/core/exit_code.h"
#include "driver/report/text_format.h"

namespace cp_pool {

namespace {

constexpr const char* kInject = "CP_POOL_INJECT";

struct Target {
  int rank = 0;
  std::string glob = "*";  // over the IDs of cases
};

// Reads KIND@RANK:PHASE[:CASE]. Returns nullopt for any other text.
std::optional<Target> target_of(const std::string& fault) {
  const std::size_t at = fault.find('@');
  const std::size_t colon = fault.find(':', std::min(at, fault.size()));
  if (colon == std::string::npos) return std::nullopt;
  Target target;
  const auto [end, error] = std::from_chars(fault.data() + at + 1, fault.data() + colon, target.rank);
  if (error != std::errc{} || end != fault.data() + colon) return std::nullopt;
  const std::size_t second = fault.find(':', colon + 1);
  if (second != std::string::npos && second + 1 < fault.size()) target.glob = fault.substr(second + 1);
  return target;
}

}  // namespace

void expect_injected_ranks(const std::vector<Item>& cases) {
  const char* const faults = std::getenv(kInject);
  if (faults == nullptr) return;
  std::istringstream words{faults};
  for (std::string fault; words >> fault;) {
    const std::optional<Target> target = target_of(fault);
    if (!target) continue;
    int most_ranks = 0;
    for (const Item& named : cases) {
      if (glob_matches(target->glob, named.id)) most_ranks = std::max(most_ranks, named.payload->ranks());
    }
    if (target->rank < most_ranks) continue;
    throw CommandError(ExitCode::usage,
                       most_ranks == 0
                           ? fmt::format("{}: {}: no selected case matches {}", kInject, fault, target->glob)
                           : fmt::format("{}: {}: no selected case has a rank {}; the largest that it names has {}",
                                         kInject, fault, target->rank, count_of(most_ranks, "rank")));
  }
}

}  // namespace cp_pool
