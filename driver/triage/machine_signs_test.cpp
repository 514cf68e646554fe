#include "driver/triage/machine_signs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

CaseFinished crash(std::string reason) {
  CaseFinished event;
  event.outcome = CaseOutcome::crash;
  event.reason = std::move(reason);
  return event;
}

TEST(MachineSign, IsWhatTheDriverSaidOfMemoryAndClocks) {
  EXPECT_EQ(machine_sign(crash("rank 1 died: signal 9; meanwhile the kernel killed a process as memory ran out")),
            "memory ran out, and the kernel killed a process (\"rank 1 died: signal 9; meanwhile the kernel killed a "
            "process as memory ran out\")");
  EXPECT_THAT(machine_sign(crash("no result within 90 ms; the machine slept for 12.0 s meanwhile")),
              StartsWith("the machine slept"));
  EXPECT_THAT(machine_sign(crash("x; the machine's clock was set by +3600.0 s meanwhile")),
              StartsWith("the clock was set"));
}

TEST(MachineSign, IsWhatCudaSaysOfADevice) {
  CaseFinished event = crash("an error");
  event.ranks = {
      {{}, 1, /*ok=*/false, /*aborted=*/false, "first\nCUDA error: uncorrectable ECC error encountered\nlast"}};
  EXPECT_EQ(machine_sign(event), "a device failed (\"CUDA error: uncorrectable ECC error encountered\")");
  CaseFinished told = crash("an error");
  told.stderr_tails = {{.rank = 0, .text = "NVRM: GPU has fallen off the bus.\n", .fenced = true}};
  EXPECT_THAT(machine_sign(told), HasSubstr("fallen off the bus"));
}

TEST(MachineSign, IsNotWhatACaseDoesItself) {
  EXPECT_EQ(machine_sign(crash("rank 1 died: signal 9 (SIGKILL)")), "");
  EXPECT_EQ(machine_sign(crash("CUDA error: out of memory")), "");
  EXPECT_EQ(machine_sign(crash("CUDA error: an illegal memory access was encountered")), "");
  EXPECT_EQ(machine_sign(crash("CUDA error: device-side assert triggered")), "");
  CaseFinished wrong = crash("dq is wrong");
  wrong.outcome = CaseOutcome::fail;
  wrong.stderr_tails = {{.rank = 0, .text = "cache: No space left on device\n", .fenced = true}};
  EXPECT_EQ(machine_sign(wrong), "") << "a wrong answer is not excused by what a rank wrote";
  CaseFinished passed = crash("uncorrectable ECC error");
  passed.outcome = CaseOutcome::pass;
  EXPECT_EQ(machine_sign(passed), "");
}

}  // namespace
}  // namespace cp_pool
