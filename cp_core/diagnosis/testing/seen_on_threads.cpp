#include "cp_core/diagnosis/testing/seen_on_threads.h"

#include <chrono>

#include <fmt/format.h>

#include "cases/lengths.h"
#include "cp_core/builtin/builtin_implementation.h"
#include "cp_core/testing/ranks_on_threads.h"

namespace cp_pool::diagnosis::test {

std::vector<SeenKeys> seen_on_threads(const Case& c, const MakeImplementation& make, const Settings& settings,
                                      bool trusts_lse) {
  std::vector<SeenKeys> found(static_cast<std::size_t>(c.cp_size));
  const auto ask = [&](const CpGroups& groups, int rank) {
    const std::unique_ptr<Implementation> implementation = make();
    JudgedCase judged;
    judged.c = c;
    judged.lengths = resolve_lengths(c);
    judged.sharding = implementation->sharding(c, judged.lengths);
    Questions questions(*implementation, judged, groups, settings);
    found[static_cast<std::size_t>(rank)] = find_seen_keys(questions, {judged.c, judged.lengths}, trusts_lse);
  };
  run_ranks(c.cp_size, ask, std::chrono::minutes(9));  // generous, for a machine that is busy with other work
  return found;
}

SeenKeys seen_by_own(const Case& c) {
  return seen_on_threads(c, [] { return std::make_unique<BuiltinImplementation>(); }).front();
}

std::string text_of(const SeenKeys& seen) {
  std::string text = seen.why_not;
  for (const auto* const rectangles : {&seen.pairs.missing, &seen.pairs.excess}) {
    for (const PairRectangle& one : *rectangles) text += one.text + '\n';
  }
  for (const std::string& note : seen.notes) text += note + '\n';
  return text;
}

}  // namespace cp_pool::diagnosis::test
