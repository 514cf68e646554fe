#include "driver/core/rank_environment.h"

#include <gmock/gmock.h>

#include "driver/testing/scoped_variable.h"

namespace cp_pool {
namespace {

using test::ScopedVariable;
using namespace ::testing;

TEST(RankEnvironment, KeepsWhatMattersAndNoSecret) {
  const ScopedVariable kept("NCCL_DEBUG", "INFO");
  const ScopedVariable other("GITHUB_REF", "refs/heads/main");
  const ScopedVariable token("CP_POOL_UPLOAD_TOKEN", "tok-123456");
  const ScopedVariable key("TORCH_API_key", "tok-123456");
  const ScopedVariable url("NCCL_CONF_URL", "https://me:tok-123456@host/x");
  const auto environment = environment_to_keep();
  EXPECT_THAT(environment, Contains("NCCL_DEBUG=INFO"));
  for (const std::string& entry : environment) {
    EXPECT_THAT(entry, Not(HasSubstr("tok-123456")));
    EXPECT_THAT(entry, Not(HasSubstr("refs/heads")));
  }
}

TEST(RankEnvironment, KnowsWhatIsOfThisMachine) {
  for (const char* name : {"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CUDA_VISIBLE_DEVICES"}) {
    EXPECT_TRUE(is_of_this_machine(name)) << name;
  }
  for (const char* name : {"NCCL_DEBUG", "CUDA_LAUNCH_BLOCKING", "CP_POOL_PLAN_STORE"}) {
    EXPECT_FALSE(is_of_this_machine(name)) << name;
  }
}

TEST(RankEnvironment, WhatChangesAWorkerMatters) {
  for (const char* name :
       {"CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCH_LOGS",
        "CP_POOL_PLAN_STORE", "PYTHONPATH", "LD_LIBRARY_PATH", "PATH", "VIRTUAL_ENV"}) {
    EXPECT_TRUE(matters_to_ranks(name)) << name;
  }
  for (const char* name :
       {"TERM", "COLUMNS", "SSH_TTY", "PWD", "SHLVL", "XDG_RUNTIME_DIR", "PATHS", "MY_CUDA_HOME", "cuda_x", ""}) {
    EXPECT_FALSE(matters_to_ranks(name)) << name;
  }
}

}  // namespace
}  // namespace cp_pool
