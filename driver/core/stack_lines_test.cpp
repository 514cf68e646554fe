#include "driver/core/stack_lines.h"

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

TEST(ShortFunctionName, LeavesOutWhatIsNoName) {
  EXPECT_EQ(
      short_function_name("cp_pool::(anonymous namespace)::pass_on(cp_pool::(anonymous namespace)::Neighbours const&, "
                          "std::basic_string_view<char, std::char_traits<char> >)"),
      "cp_pool::pass_on");
  EXPECT_EQ(short_function_name("cp_pool::HeadExchange::start(std::vector<int, std::allocator<int> >) const"),
            "cp_pool::HeadExchange::start");
  EXPECT_EQ(short_function_name("void foo<std::function<void (int)> >(int)"), "foo<..>");
  EXPECT_EQ(short_function_name("std::vector<int, std::allocator<int> >& A<int>::all<(B)3>()"), "A<..>::all<..>");
  EXPECT_EQ(short_function_name("foo(int)::{lambda(auto:1)#2}::operator()(int) const"), "foo::{lambda}::operator()");
  EXPECT_EQ(short_function_name("A::run(int) const::{lambda()#1}::operator()() const"), "A::run::{lambda}::operator()");
  EXPECT_EQ(short_function_name("A::operator<<(std::vector<int>)"), "A::operator<<");
  EXPECT_EQ(short_function_name("A<int>::operator->() const"), "A<..>::operator->");
  EXPECT_EQ(short_function_name("operator new(unsigned long)"), "operator new");
  EXPECT_EQ(short_function_name("f(int) [clone .cold]"), "f");
  EXPECT_EQ(short_function_name("my_operator_x(int)"), "my_operator_x");
  EXPECT_EQ(short_function_name("poll"), "poll");
  EXPECT_EQ(short_function_name("broken<int(("), "broken<..>");
  EXPECT_EQ(short_function_name(""), "");
}

TEST(ReadableStack, NamesFunctionsAndTheirPrograms) {
  EXPECT_EQ(readable_stack("/a b/bin/cp-pool-worker(_ZN7cp_pool11RankCompute5serveEv+0x31)[0x55c9fc466471]\n"),
            "cp_pool::RankCompute::serve (cp-pool-worker)\n")
      << "what is alone stays, whatever it is";
  EXPECT_EQ(readable_stack("./w(_ZN12_GLOBAL__N_13fooEi+0x1)[0x1]"), "foo (w)");
  EXPECT_EQ(readable_stack("/l/t.so(_ZN3fooISt8functionIFviEEEEvT_+0x9)[0x7f]"), "foo<..> (t.so)");
  EXPECT_EQ(readable_stack("/lib/libc.so.6(poll+0x4f)[0x7faa7391a26f]"), "poll (libc.so.6)");
  EXPECT_EQ(readable_stack("/lib/libc.so.6(+0x3c050)[0x7faa7385a050]"), "libc.so.6 +0x3c050");
}

TEST(ReadableStack, ShortensAThrowSiteAndLeavesOutTheHarness) {
  EXPECT_EQ(readable_stack("std::runtime_error: injected\n"
                           "thrown from:\n"
                           "  #0 cp_pool::FaultInjector::fire(cp_pool::Fault const&) const in /w/bin/cp-pool-worker\n"
                           "  #1 cp_pool::(anonymous namespace)::ObservedCommunicator::trade(at::Tensor&) in "
                           "/w/bin/cp-pool-worker\n"
                           "  #2 cp_pool::HeadExchange::start(std::vector<int, std::allocator<int> >) const at "
                           "/src/cp_core/context_parallel/head_exchange.cpp:58\n"
                           "  #3 cp_pool::forward(int) in /w/bin/cp-pool-worker\n"
                           "  #4 cp_pool::forward() in /w/bin/cp-pool-worker\n"
                           "  #5 cp_pool::(anonymous namespace)::CaseRun::run() in /w/bin/cp-pool-worker\n"
                           "  #6 main in /w/bin/cp-pool-worker\n"
                           "  #7 __libc_start_call_main at ../sysdeps/nptl/libc_start_call_main.h:58\n"
                           "  #8 __libc_start_main@@GLIBC_2.34 at ../csu/libc-start.c:360\n"
                           "  #9 _start in /w/bin/cp-pool-worker\n"
                           "said afterwards"),
            "std::runtime_error: injected\n"
            "thrown from:\n"
            "  #2 cp_pool::HeadExchange::start (context_parallel/head_exchange.cpp:58)\n"
            "  #3 cp_pool::forward (cp-pool-worker)\n"
            "said afterwards");
}

TEST(ReadableStack, ShortensWhatLibTorchWrites) {
  EXPECT_EQ(readable_stack(
                "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x9d (0x7f3 in /t/lib/libc10.so)\n"
                "frame #1: <unknown function> + 0x16cf01d (0x7f4 in /t/lib/libtorch_cpu.so)\n"
                "frame #2: main + 0x8d9 (0x55 in /w/bin/cp-pool-worker)\n"
                "frame #3: _start + 0x21 (0x55 in /w/bin/cp-pool-worker)\n"),
            "#0 c10::Error::Error (libc10.so)\n"
            "#1 libtorch_cpu.so +0x16cf01d\n");
}

// A rank answers SIGUSR2 with such a trace.
TEST(ReadableStack, LeavesOutTheHarnessOfARankThatSaysWhereItStands) {
  EXPECT_EQ(readable_stack("  #6 _start in /w/cp-pool-worker\n"
                           "  #5 libc.so.6+0x2724a\n"
                           "  #4 main at /src/worker/main.cpp:3\n"
                           "  #3 cp_pool::RankCompute::serve() in /w/cp-pool-worker\n"
                           "  #2 cp_pool::Mail::pop() in /w/cp-pool-worker\n"
                           "  #1 c10d::TCPStore::doWait(int) in /w/libtorch_cpu.so\n"
                           "  #0 poll in /lib/libc.so.6\n"
                           "cp-pool-worker: rank 0: in no communication\n"),
            "  #1 c10d::TCPStore::doWait (libtorch_cpu.so)\n"
            "  #0 poll (libc.so.6)\n"
            "cp-pool-worker: rank 0: in no communication\n");
}

TEST(ReadableStack, LeavesOtherLinesAlone) {
  const std::string text =
      "said\n\nf(x)[0]\na(b)[0x1]\n(_Zbad+0x1)[0x2\n#1 priority: f(x) at noon\n#2\n#3x\nframe #4: (1)\nlast";
  EXPECT_EQ(readable_stack(text), text);
  EXPECT_EQ(readable_stack("/w(_Znonsense+0x1)[0x2]"), "_Znonsense (w)");
  EXPECT_EQ(readable_stack(""), "");
}

TEST(ThrowSite, IsTheInnermostFrameThatIsShown) {
  EXPECT_EQ(
      throw_site(
          "boom\nthrown from:\n  #0 cp_pool::FaultInjector::fire() in /w/x\n  #1 f(int) in /w/x\n  #2 main in /w/x\n"),
      "f (x)");
  EXPECT_EQ(throw_site("boom"), "");
}

TEST(ReadableStack, OfACrashStartsWhereTheSignalStruckWithOrWithoutAName) {
  EXPECT_EQ(readable_stack("  #4 _start in /bin/w\n  #3 libc.so.6+0x27249\n  #2 main at /src/worker/main.cpp:3\n"
                           "  #1 cp_pool::copy(int) at /src/cp_core/thd/copy.cpp:12\n  #0 libc.so.6+0x8aeec\n"
                           "cp-pool-worker: rank 1: SIGSEGV\n"),
            "  #1 cp_pool::copy (thd/copy.cpp:12)\n  #0 libc.so.6+0x8aeec\ncp-pool-worker: rank 1: SIGSEGV\n");
}

}  // namespace
}  // namespace cp_pool
