#include "driver/service/environment.h"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/testing/scoped_variable.h"

namespace cp_pool::service {
namespace {

using test::ScopedVariable;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::ThrowsMessage;
using ::testing::WhenSorted;

TEST(Environment, WhatChangesAWorkerMatters) {
  for (const char* name :
       {"CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCH_LOGS",
        "CP_POOL_PLAN_STORE", "PYTHONPATH", "LD_LIBRARY_PATH", "PATH", "VIRTUAL_ENV"}) {
    EXPECT_TRUE(matters_to_ranks(name)) << name;
  }
}

TEST(Environment, WhatATerminalAddsDoesNot) {
  for (const char* name :
       {"TERM", "COLUMNS", "SSH_TTY", "PWD", "SHLVL", "XDG_RUNTIME_DIR", "PATHS", "MY_CUDA_HOME", "cuda_x", ""}) {
    EXPECT_FALSE(matters_to_ranks(name)) << name;
  }
}

TEST(Environment, OfThisProcessIsSortedAndKeepsWhatStandsBehindTheFirstEquals) {
  const ScopedVariable odd{"CP_POOL_TEST_ODD", "a=b="};
  const ScopedVariable empty{"CP_POOL_TEST_EMPTY", ""};
  const Variables own = own_environment();
  EXPECT_THAT(own, WhenSorted(own));
  EXPECT_THAT(own, Contains(Pair("CP_POOL_TEST_ODD", "a=b=")));
  EXPECT_THAT(own, Contains(Pair("CP_POOL_TEST_EMPTY", "")));
  EXPECT_THAT(what_matters(own), Contains("CP_POOL_TEST_ODD=a=b="));
}

TEST(Environment, WhatMattersIsReplacedAndAllElseIsTheServices) {
  const Variables base{{"HOME", "/service"}, {"OMP_NUM_THREADS", "1"}, {"PATH", "/service/bin"}};
  EXPECT_THAT(with_what_matters(base, {"PATH=/client/bin", "CUDA_X="}),
              ElementsAre(Pair("CUDA_X", ""), Pair("HOME", "/service"), Pair("PATH", "/client/bin")));
  EXPECT_THAT(with_what_matters(base, {}), ElementsAre(Pair("HOME", "/service")));
}

// So clients in different terminals share pools.
TEST(Environment, WhatDoesNotMatterIsNotTakenFromAClient) {
  EXPECT_THAT(with_what_matters({{"TERM", "dumb"}}, {"TERM=xterm", "SHLVL=3"}), ElementsAre(Pair("TERM", "dumb")));
}

TEST(Environment, GoesThroughAMessageUnchanged) {
  const Variables base{{"HOME", "/home"}, {"LD_PRELOAD", "x=y"}, {"OMP_NUM_THREADS", ""}};
  EXPECT_EQ(with_what_matters(base, what_matters(base)), base);
}

TEST(Environment, AnEntryThatIsNoVariableIsNamed) {
  for (const std::string entry : {"PATH", "=x", ""}) {
    EXPECT_THAT([&] { with_what_matters({}, {"OMP_A=1", entry}); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("'" + entry + "' is no NAME=VALUE")));
  }
  EXPECT_THROW(with_what_matters({}, {std::string{"PATH=a\0b", 8}}), std::invalid_argument);
  EXPECT_THROW(with_what_matters({}, {std::string{"PATH=a\0b", 8}}), std::invalid_argument);
}

}  // namespace
}  // namespace cp_pool::service
