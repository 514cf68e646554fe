// On the CPU, where there are no streams: gpu_mutants_test shows what the waits are for.
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

TEST(SecondStreamOnCpu, LetsExceptionsThrough) {
  SecondStream second(at::kCPU);
  EXPECT_THROW(second.run([] { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_NO_THROW(second.join());
}

}  // namespace
}  // namespace cp_pool
