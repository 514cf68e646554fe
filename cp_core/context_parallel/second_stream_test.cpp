// Tests on the CPU, where there are no streams. gpu_mutants_test shows that each wait is needed.
#include "cp_core/context_parallel/second_stream.h"

#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

TEST(SecondStreamOnCpu, RunsInTheOrderOfTheCalls) {
  std::string order;
  SecondStream second(at::kCPU);
  order += "first ";
  second.mark();
  second.run([&] {
    second.wait_for_mark();
    order += "second ";
  });
  second.wait_for_other();
  order += "third";
  second.join();
  EXPECT_EQ(order, "first second third");
}

TEST(StreamTurnsOnCpu, RunInTheOrderOfTheCallsWithASecondStreamAndWithout) {
  SecondStream second(at::kCPU);
  for (SecondStream* const stream : {&second, static_cast<SecondStream*>(nullptr)}) {
    std::string order;
    StreamTurns turns(stream);
    turns.next([&] { order += "one "; });
    turns.next([&] { order += "two "; });
    turns.again([&] { order += "still two "; });
    turns.next([&] { order += "three"; });
    EXPECT_EQ(order, "one two still two three");
  }
}

TEST(SecondStreamOnCpu, LetsExceptionsThrough) {
  SecondStream second(at::kCPU);
  EXPECT_THROW(second.run([] { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_NO_THROW(second.join());
}

}  // namespace
}  // namespace cp_pool
