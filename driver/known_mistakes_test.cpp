#include "driver/known_mistakes.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

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
