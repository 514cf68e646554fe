// Diagnoses every deliberate fault of mutants.def that CPU ranks can have, on up to two cases that it makes fail, and
// compares the answers with tests/diagnosis/expected.json, which was written before any diagnosis was tried.
//
// CP_POOL_DIAGNOSES names a file that gets one line per answer: mutant, case, certainty, id and the other ids,
// separated by tabs. tools/diagnoses makes the table of docs/diagnosis.md from it.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cases/diagnosis.h"
#include "cases/lengths.h"
#include "cp_core/diagnosis/testing/diagnosed_on_threads.h"
#include "cp_core/mutation.h"
#include "cp_core/testing/cases_on_threads.h"
#include "cp_core/testing/witness_cases.h"

namespace cp_pool {

// Is called by GoogleTest to print the parameter of a test.
void PrintTo(const MutantInfo& info, std::ostream* out) {
  *out << info.name;
}

namespace diagnosis {
namespace {

constexpr std::size_t kMostCases = 2;
constexpr int kMostRanks = 4;  // preferred, since a case with fewer rows takes less time
constexpr double kLeastRight = 0.85;

struct Witness {
  std::string name;
  Case c;
};

// Cases of several groups do not run on threads of one group.
std::vector<Witness> witnesses() {
  std::vector<Witness> all;
  int number = 0;
  for (const Case& c : verify::test::witness_cases()) {
    std::string name =
        fmt::format("{}/{}/cp{}/{}/{}", to_string(c.comm), to_string(c.layout), c.cp_size, to_string(c.dtype), number);
    ++number;
    if (c.group <= 1) all.push_back({.name = std::move(name), .c = c});
  }
  std::ranges::stable_partition(all, [](const Witness& witness) { return witness.c.cp_size <= kMostRanks; });
  // Our own attention then cuts whole sequences, which neither inputs nor results show.
  std::ranges::stable_partition(all, [](const Witness& witness) { return witness.c.replicated == 0; });
  return all;
}

bool fails(const Case& c) {
  return std::ranges::any_of(verify::test::run_on_threads(c),
                             [](const RankReport& report) { return report.outcome == CaseOutcome::fail; });
}

// The cases that fail with the active mutant, of two communication types if possible.
std::vector<Witness> failing_cases() {
  static const std::vector<Witness> all = witnesses();
  std::vector<Witness> chosen;
  std::vector<Witness> alike;
  std::set<CommType> comms;
  for (const Witness& witness : all) {
    if (chosen.size() == kMostCases) break;
    const bool known = comms.contains(witness.c.comm);
    if ((known && !alike.empty()) || !fails(witness.c)) continue;
    (known ? alike : chosen).push_back(witness);
    comms.insert(witness.c.comm);
  }
  if (chosen.size() == 1) chosen.insert(chosen.end(), alike.begin(), alike.end());
  return chosen;
}

// The entry of expected.json for a mutant.
struct Expected {
  bool none = false;
  std::set<std::string> ids;

  [[nodiscard]] bool is_met_by(const Diagnosis& diagnosis) const {
    if (none) return diagnosis.certainty == Certainty::unknown;
    if (diagnosis.certainty == Certainty::unknown) return false;
    const auto accepted = [this](const std::string& id) { return ids.contains(id); };
    return accepted(diagnosis.id) || std::ranges::any_of(diagnosis.others, accepted);
  }
};

Expected expected_of(std::string_view mutant) {
  static const auto file =
      nlohmann::json::parse(std::ifstream(std::string(CP_POOL_SOURCE_DIR) + "/tests/diagnosis/expected.json"));
  const auto& entry = file.at("mutants").at(std::string(mutant));
  Expected expected{.none = entry.at("id") == "none", .ids = {entry.at("id").get<std::string>()}};
  for (const auto& other : entry.value("or", nlohmann::json::array())) expected.ids.insert(other.at("id"));
  return expected;
}

void write(const std::string& mutant, const std::string& c, const Diagnosis& diagnosis) {
  const char* const file = std::getenv("CP_POOL_DIAGNOSES");
  if (file == nullptr) return;
  std::ofstream(file, std::ios::app) << fmt::format("{}\t{}\t{}\t{}\t{}\n", mutant, c, to_string(diagnosis.certainty),
                                                    diagnosis.id, fmt::join(diagnosis.others, ","));
}

class DiagnosisOfMutants : public testing::TestWithParam<MutantInfo> {
 protected:
  static void TearDownTestSuite() {
    EXPECT_GE(right, static_cast<int>(kLeastRight * asked)) << "of " << asked << " mutants";
  }

  static inline int asked = 0;
  static inline int right = 0;  // in all their answers
};

// So that a mutant that keeps a result has one of another seed.
void run_with_another_seed(Case c) {
  const SequenceLengths lengths = resolve_lengths(c);
  if (c.layout == Layout::thd) {
    c.seqlens = lengths.valid_q;
    c.seqlens_kv = lengths.valid_kv;
  }
  ++c.seed;
  (void)verify::test::run_on_threads(c);
}

TEST_P(DiagnosisOfMutants, NoneIsWrongAndCertain) {
  const MutantInfo& info = GetParam();
  const Expected expected = expected_of(info.name);
  const ScopedMutant on(info.mutant);
  const std::vector<Witness> cases = failing_cases();
  bool all_right = true;
  for (const Witness& witness : cases) {
    run_with_another_seed(witness.c);
    const Diagnosis answer = test::diagnosed(witness.c).diagnosis;
    write(std::string(info.name), witness.name, answer);
    const bool is_right = expected.is_met_by(answer);
    all_right = all_right && is_right;
    const std::string text =
        fmt::format("{}: {}\n{}", info.name, test::text_of(answer), verify::test::text_of(witness.c));
    EXPECT_TRUE(is_right || answer.certainty != Certainty::certain) << text;
    if (!is_right) std::cout << text << "\n";
  }
  ++asked;
  if (all_right && (expected.none || !cases.empty())) ++right;
}

std::vector<MutantInfo> mutants_of_cpu_ranks() {
  std::vector<MutantInfo> some;
  for (const MutantInfo& info : all_mutants()) {
    if (info.where != MutantWhere::gpu) some.push_back(info);
  }
  return some;
}

INSTANTIATE_TEST_SUITE_P(, DiagnosisOfMutants, testing::ValuesIn(mutants_of_cpu_ranks()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace diagnosis
}  // namespace cp_pool
