#include "tests/property/random_case.h"

#include <random>
#include <set>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cases/case_json.h"
#include "cp_core/trial/run_case.h"

namespace cp_pool::property {
namespace {

TEST(RandomCase, IsValidAndNeverSkipped) {
  std::mt19937_64 generator(3);
  for (int i = 0; i < 20'000; ++i) {
    const Case c = random_case(generator);
    const auto problem = find_problem(c);
    ASSERT_FALSE(problem) << problem->field << ": " << problem->message << "\n" << to_json(c).dump();
    ASSERT_EQ(skip_reason(c), "") << to_json(c).dump();
  }
}

// Every name of every field with names, both truth values, and each list and null.
TEST(RandomCase, TakesEveryValueOfEveryFieldWithFewOfThem) {
  std::mt19937_64 generator(4);
  std::set<std::string> drawn;
  for (int i = 0; i < 500; ++i) {
    const Case c = random_case(generator);
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
       {"seqlens=list",      "seqlens=none",  "seqlens_kv=list", "seqlens_kv=none", "cp_size=1",      "cp_size=2",
        "cp_size=3",         "cp_size=4",     "cp_size=5",       "cp_size=6",       "cp_size=7",      "cp_size=8",
        "input_scale=0.125", "input_scale=1", "input_scale=3",   "input_scale=10",  "input_scale=30", "chunk=0",
        "window=-1,-1",      "window=0,0",    "replicated=0",    "replicated=3"}) {
    EXPECT_TRUE(drawn.contains(expected)) << expected;
  }
}

}  // namespace
}  // namespace cp_pool::property
