#include "driver/reporters/stack_lines.h"

#include <string>

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

TEST(ReadableStack, NamesFunctionsAndTheirPrograms) {
  EXPECT_EQ(readable_stack("/a b/bin/cp-pool-worker(_ZN7cp_pool11RankCompute5serveEv+0x31)[0x55c9fc466471]\n"),
            "cp_pool::RankCompute::serve (cp-pool-worker)\n");
  EXPECT_EQ(readable_stack("./w(_ZN12_GLOBAL__N_13fooEi+0x1)[0x1]"), "(anonymous namespace)::foo (w)");
  EXPECT_EQ(readable_stack("/l/t.so(_ZN3fooISt8functionIFviEEEEvT_+0x9)[0x7f]"),
            "void foo<std::function<void (int)> > (t.so)");
  EXPECT_EQ(readable_stack("/lib/libc.so.6(poll+0x4f)[0x7faa7391a26f]"), "poll (libc.so.6)");
  EXPECT_EQ(readable_stack("/lib/libc.so.6(+0x3c050)[0x7faa7385a050]"), "libc.so.6 +0x3c050");
}

TEST(ReadableStack, LeavesOtherLinesAlone) {
  const std::string text = "said\n\nf(x)[0]\na(b)[0x1]\n(_Zbad+0x1)[0x2\nlast";
  EXPECT_EQ(readable_stack(text), text);
  EXPECT_EQ(readable_stack("/w(_Znonsense+0x1)[0x2]"), "_Znonsense (w)");
  EXPECT_EQ(readable_stack(""), "");
}

}  // namespace
}  // namespace cp_pool
