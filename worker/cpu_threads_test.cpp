#include <cstdlib>
#include <unistd.h>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "worker/rank_device.h"

namespace cp_pool {
namespace {

Case problem(std::int64_t batch, std::int64_t seqlen, std::int64_t heads, std::int64_t head_dim) {
  Case c;
  c.batch = batch;
  c.seqlen_q = c.seqlen_kv = seqlen;
  c.heads = c.kv_heads = heads;
  c.head_dim_qk = c.head_dim_v = head_dim;
  return c;
}

TEST(CpuThreads, OfASmallProblemAreOne) {
  EXPECT_EQ(threads_for(problem(2, 128, 4, 64), 16), 1);
}

TEST(CpuThreads, OfALargeProblemAreTheRanksShare) {
  EXPECT_EQ(threads_for(problem(2, 4096, 12, 128), 16), 16);
  EXPECT_EQ(threads_for(problem(2, 4096, 12, 128), 1), 1);
}

TEST(CpuThreads, GrowWithTheProblemAndShrinkWithTheRanks) {
  Case c = problem(1, 1024, 4, 64);  // 2^29 multiplications
  c.cp_size = 2;
  EXPECT_EQ(threads_for(c, 16), 4);
  c.cp_size = 4;
  EXPECT_EQ(threads_for(c, 16), 2);
}

TEST(CpuThreads, OfAHugeProblemDoNotOverflow) {
  EXPECT_EQ(threads_for(problem(1 << 20, 1 << 30, 1 << 20, 256), 16), 16);
}

// OMP_NUM_THREADS is read once per process, so this test needs a process of its own.
[[noreturn]] void exit_with_threads_of_a_user() {
  setenv("OMP_NUM_THREADS", "3", 1);
  at::set_num_threads(3);
  use_threads_for(problem(2, 128, 4, 64), 1);
  _exit(at::get_num_threads());
}

TEST(CpuThreads, AreTheUsersIfThereIsAChoiceOfTheirs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_with_threads_of_a_user(), testing::ExitedWithCode(3), "");
}

TEST(CpuThreads, EachRankHasAShare) {
  EXPECT_GE(share_of_cores(1), 1);
  EXPECT_EQ(share_of_cores(1 << 20), 1);
}

}  // namespace
}  // namespace cp_pool
