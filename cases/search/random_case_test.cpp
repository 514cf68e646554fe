#include "cases/search/random_case.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/comm_facts.h"

namespace cp_pool::search {
namespace {

TEST(RandomCase, IsValidAndItsHeadsDivide) {
  std::mt19937_64 generator(3);
  for (int i = 0; i < 20'000; ++i) {
    const Case c = random_case(generator);
    const auto problem = find_problem(c);
    ASSERT_FALSE(problem) << problem->field << ": " << problem->message << "\n" << to_json(c).dump();
  }
}

TEST(RandomCase, IsTheSameForTheSameStateOfTheGenerator) {
  std::mt19937_64 one(7);
  std::mt19937_64 other(7);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(random_case(one), random_case(other));
}

// A new field of Case needs a line in random_case.cpp; nothing else would notice that the search never varies the
// field.
TEST(RandomCase, DrawsEveryFieldOfACase) {
  std::vector<std::string> fields = case_field_names();
  std::erase_if(fields, [](const std::string& name) { return name == "suite" || name == "model" || name == "fp8"; });
  std::mt19937_64 generator(4);
  std::map<std::string, std::set<std::string>> values;
  for (int i = 0; i < 1000; ++i) {
    const Case c = random_case(generator);
    for (const std::string& name : fields) values[name].insert(field_text(*find_case_field(name), c));
  }
  for (const std::string& name : fields) EXPECT_GE(values[name].size(), 2U) << name << " is always the same";
}

// Every name of the fields of Kind::name, both boolean values, and for lists both a list and null.
TEST(RandomCase, TakesEveryValueOfEveryFieldWithFewOfThem) {
  std::mt19937_64 generator(4);
  std::set<std::string> drawn;
  for (int i = 0; i < 1000; ++i) {
    const Case c = random_case(generator);
    if (c.group_ranks && c.group_ranks->back().size() < c.group_ranks->front().size()) drawn.insert("groups of sizes");
    for (const CaseField& field : case_fields()) {
      const std::string text = field_text(field, c);
      drawn.insert(fmt::format("{}={}", field.name, text));
      if (field.kind == CaseField::Kind::list && text != "none") drawn.insert(fmt::format("{}=list", field.name));
    }
  }
  for (const CaseField& field : case_fields()) {
    if (field.kind == CaseField::Kind::name) {
      for (const std::string& name : field.names()) {
        EXPECT_TRUE(drawn.contains(fmt::format("{}={}", field.name, name))) << field.name << " is never " << name;
      }
    }
    if (field.kind == CaseField::Kind::boolean) {
      for (const char* value : {"true", "false"}) {
        EXPECT_TRUE(drawn.contains(fmt::format("{}={}", field.name, value))) << field.name << " is never " << value;
      }
    }
  }
  for (const char* expected :
       {"seqlens=list",    "seqlens=none",      "seqlens_kv=list",   "seqlens_kv=none",     "cp_size=1",
        "cp_size=2",       "cp_size=3",         "cp_size=4",         "cp_size=5",           "cp_size=6",
        "cp_size=7",       "cp_size=8",         "input_scale=0.125", "input_scale=1",       "input_scale=3",
        "input_scale=10",  "input_scale=30",    "score_offset=-100", "score_offset=-65536", "score_offset=100",
        "chunk=0",         "window=-1,-1",      "window=0,0",        "group_ranks=0,1+2,3", "group_ranks=1,2+0,3",
        "groups of sizes", "group_lengths=list"}) {
    EXPECT_TRUE(drawn.contains(expected)) << expected;
  }
  EXPECT_TRUE(drawn.contains("inner=4"));
}

std::vector<FixedField> fixed(std::initializer_list<std::pair<const char*, Json>> values) {
  std::vector<FixedField> out;
  for (const auto& [name, value] : values) out.push_back({.field = find_case_field(name), .value = value});
  return out;
}

TEST(RandomCase, KeepsFixedFieldsAndDrawsTheOthersToFit) {
  const auto set = fixed({{"comm", "a2a"}, {"cp_size", 3}, {"layout", "thd"}, {"kv_heads", 6}, {"model", "mine"}});
  std::mt19937_64 generator(8);
  std::set<std::int64_t> heads;
  for (int i = 0; i < 1000; ++i) {
    const Case c = random_case(generator, set);
    ASSERT_FALSE(find_problem(c)) << to_json(c).dump();
    EXPECT_EQ(c.comm, CommType::a2a);
    EXPECT_EQ(c.cp_size, 3);
    EXPECT_EQ(c.layout, Layout::thd);
    EXPECT_EQ(c.kv_heads, 6);
    EXPECT_EQ(c.model, "mine");
    heads.insert(c.heads);
  }
  EXPECT_THAT(heads, ::testing::ElementsAre(6, 12, 18));
}

// Lengths are left out, because tokens that are replicated are added to them.
TEST(RandomCase, KeepsEveryFieldThatIsFixed) {
  std::mt19937_64 generator(5);
  for (int i = 0; i < 100; ++i) {
    const Case wanted = random_case(generator);
    for (const CaseField& field : case_fields()) {
      if (field.name.starts_with("seqlen")) continue;
      const std::vector<FixedField> set{{.field = &field, .value = field.write(wanted)}};
      ASSERT_EQ(field.write(random_case(generator, set)), set.front().value) << field.name;
    }
  }
}

TEST(RandomCase, SaysWhichFixedFieldCannotHaveItsValue) {
  const auto set = fixed({{"comm", 7}});
  std::mt19937_64 generator(8);
  try {
    random_case(generator, set);
    FAIL();
  } catch (const std::exception& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("--set: $.comm: 7 is not a string"));
  }
}

}  // namespace
}  // namespace cp_pool::search
