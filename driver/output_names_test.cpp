#include "driver/output_names.h"

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

Item named(const std::string& id, int run = 1, int runs = 1) {
  Item out{.id = id, .payload = {}, .rerun = ""};
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

}  // namespace
}  // namespace cp_pool
