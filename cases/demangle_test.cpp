#include "cases/demangle.h"

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

TEST(Demangled, NamesOfFunctionsAndTypesAndWhatIsNone) {
  EXPECT_EQ(demangled("_ZN3foo3barEv"), "foo::bar()");
  EXPECT_EQ(demangled("N3foo3barE"), "foo::bar");
  EXPECT_EQ(demangled("poll"), "poll");
  EXPECT_EQ(demangled(""), "");
}

}  // namespace
}  // namespace cp_pool
