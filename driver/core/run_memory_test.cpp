#include "driver/core/run_memory.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "driver/testing/attention.h"

namespace cp_pool {
namespace {

using namespace ::testing;

CaseFinished run_of(const std::string& id, const std::vector<std::string>& hashes) {
  CaseFinished event;
  event.id = id;
  event.outcome = CaseOutcome::pass;
  for (int rank = 0; const std::string& hash : hashes) {
    event.ranks.push_back({{.output_hash = hash}, rank++});
  }
  return event;
}

TEST(OutputBits, AreComparedWithTheFirstRunOfTheCase) {
  OutputBits bits;
  EXPECT_EQ(bits.other_ranks(run_of("a", {"x", "y"})), std::nullopt);
  EXPECT_EQ(bits.other_ranks(run_of("b", {"z", "z"})), std::nullopt);
  EXPECT_THAT(bits.other_ranks(run_of("a", {"x", "y"})), Optional(IsEmpty()));
  EXPECT_THAT(bits.other_ranks(run_of("a", {"x", "z"})), Optional(ElementsAre(1)));
  EXPECT_THAT(bits.other_ranks(run_of("a", {"y", "x"})), Optional(ElementsAre(0, 1)));
  EXPECT_THAT(bits.other_ranks(run_of("a", {"x", "y"})), Optional(IsEmpty())) << "with the first, not with the last";
}

TEST(OutputBits, AreThoseOfARankWhereverItIsListed) {
  OutputBits bits;
  CaseFinished event = run_of("a", {"x", "y"});
  bits.other_ranks(event);
  std::swap(event.ranks[0], event.ranks[1]);
  EXPECT_THAT(bits.other_ranks(event), Optional(IsEmpty()));
}

TEST(OutputBits, ThatAWorkerDoesNotTellAreNotCompared) {
  OutputBits bits;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(bits.other_ranks(run_of("a", {"x", ""})), std::nullopt);
    EXPECT_EQ(bits.other_ranks(run_of("a", {})), std::nullopt);
  }
}

TEST(OutputBits, ArePromisedButByTheBackwardOfLibrariesOnGpus) {
  CaseFinished event;
  test::attention(event.payload).backend = Backend::cudnn;
  test::attention(event.payload).training = true;
  event.pool = PoolId{.key = "cuda/2", .generation = 1};
  EXPECT_FALSE(promises_bits(event));
  const auto with = [&](auto change) {
    CaseFinished other = event;
    change(other);
    return promises_bits(other);
  };
  EXPECT_TRUE(with([](CaseFinished& e) { test::attention(e.payload).deterministic = true; }));
  EXPECT_TRUE(with([](CaseFinished& e) { test::attention(e.payload).backend = Backend::math; }));
  EXPECT_TRUE(with([](CaseFinished& e) { test::attention(e.payload).training = false; }));
  EXPECT_TRUE(with([](CaseFinished& e) { e.pool->key = "cpu/2"; }));
  const auto by_an_adapter = [&](auto change) {
    return with([&](CaseFinished& e) {
      e.backend = "ring";
      test::attention(e.payload).backend = Backend::math;
      change(e);
    });
  };
  EXPECT_FALSE(by_an_adapter([](CaseFinished&) {}));
  EXPECT_TRUE(by_an_adapter([](CaseFinished& e) { test::attention(e.payload).deterministic = true; }));
  EXPECT_TRUE(by_an_adapter([](CaseFinished& e) { test::attention(e.payload).training = false; }));
  EXPECT_TRUE(by_an_adapter([](CaseFinished& e) { e.pool->key = "cpu/2"; }));
}

Item named(const std::string& id, int run = 1, int runs = 1) {
  Item out{{.id = id}};
  out.run = run;
  out.runs = runs;
  return out;
}

TEST(OutputNames, CasesOfOneIdHaveNamesOfTheirOwn) {
  OutputNames names;
  names.add(0, named("a"));
  names.add(1, named("b"));
  names.add(2, named("a"));
  names.add(3, named("a"));
  EXPECT_EQ(names.own_name(0), "") << "the ID";
  EXPECT_EQ(names.own_name(1), "");
  EXPECT_EQ(names.own_name(2), "a (#2)");
  EXPECT_EQ(names.own_name(3), "a (#3)");
}

TEST(OutputNames, RunsOfARepeatedCaseAreNumbered) {
  OutputNames names;
  names.add(0, named("a", 1, 2));
  names.add(1, named("a", 2, 2));
  EXPECT_EQ(names.own_name(0), "a (run 1 of 2)");
  EXPECT_EQ(names.own_name(1), "a (run 2 of 2)");
}

using enum Certainty;

Diagnosis found(Certainty certainty, const std::vector<std::string>& ids) {
  Diagnosis out;
  out.certainty = certainty;
  out.id = ids.front();
  out.others.assign(ids.begin() + 1, ids.end());
  return out;
}

// "certain a, likely b|c": what the next case gets.
std::string text_of(const KnownMistakes& known) {
  std::string out;
  for (const KnownMistake& one : known.for_next_case()) {
    EXPECT_EQ(one.case_id, "quick/" + one.ids.front());
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", to_string(one.certainty), fmt::join(one.ids, "|"));
  }
  return out;
}

std::string known_after(const std::vector<std::pair<Certainty, std::vector<std::string>>>& diagnoses) {
  KnownMistakes known;
  for (const auto& [certainty, ids] : diagnoses) known.note(found(certainty, ids), "quick/" + ids.front());
  return text_of(known);
}

TEST(KnownMistakes, AreKeptOnceTheCertainOnesFirst) {
  EXPECT_EQ(known_after({{unknown, {"unknown"}}}), "");
  EXPECT_EQ(known_after({{likely, {"a", "b"}}, {certain, {"c"}}, {likely, {"d"}}}), "certain c, likely a|b, likely d");
  EXPECT_EQ(known_after({{likely, {"a"}}, {likely, {"a"}}, {likely, {"b", "a"}}}), "likely a");
  EXPECT_EQ(known_after({{likely, {"a", "b"}}, {likely, {"b"}}}), "likely a|b, likely b");
  EXPECT_EQ(known_after({{likely, {"a"}}, {certain, {"a"}}, {likely, {"a"}}}), "certain a, likely a");
  EXPECT_EQ(known_after({{certain, {"a"}}, {likely, {"a", "b"}}}), "certain a");
}

TEST(KnownMistakes, AreSoManyAtMostAndTheLastLikelyOneGoesFirst) {
  std::vector<std::pair<Certainty, std::vector<std::string>>> diagnoses{{likely, {"first"}}, {likely, {"second"}}};
  for (std::size_t i = 1; i < KnownMistakes::kMost; ++i) diagnoses.push_back({certain, {fmt::format("{}", i)}});
  EXPECT_EQ(known_after(diagnoses),
            "certain 1, certain 2, certain 3, certain 4, certain 5, certain 6, certain 7, likely first");
}

TEST(KnownMistakes, ThatAreLikelyAreSearchedForAgainNowAndThen) {
  KnownMistakes known;
  known.note(found(certain, {"a"}), "quick/a");
  std::vector<int> without;
  for (int answers = 1; answers <= 100; ++answers) {
    known.note(found(likely, {"b"}), "quick/b");
    if (text_of(known) == "certain a") without.push_back(answers);
  }
  EXPECT_EQ(without, (std::vector{1, 4, 16, 64}));
}

}  // namespace
}  // namespace cp_pool
