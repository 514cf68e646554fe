#include "cp_core/comm/peer/peer_environment.h"

#include <cstdlib>

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

class PeerEnvironment : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    unsetenv("CP_POOL_PEER_COPIES");
    unsetenv("NCCL_P2P_DISABLE");
  }
  static std::string with(const char* variable, const char* value) {
    setenv(variable, value, /*overwrite=*/1);
    return peer_copies_forbidden();
  }
};

TEST_F(PeerEnvironment, AllowsPeerCopiesUnlessToldOtherwise) {
  EXPECT_EQ(peer_copies_forbidden(), "");
  EXPECT_EQ(with("CP_POOL_PEER_COPIES", ""), "");
  EXPECT_EQ(with("CP_POOL_PEER_COPIES", "on"), "");
  EXPECT_EQ(with("NCCL_P2P_DISABLE", "0"), "");
}

TEST_F(PeerEnvironment, SaysWhichVariableForbidsThem) {
  EXPECT_EQ(with("CP_POOL_PEER_COPIES", "off"), "CP_POOL_PEER_COPIES is off");
  EXPECT_EQ(with("CP_POOL_PEER_COPIES", "no"), "CP_POOL_PEER_COPIES: 'no' is neither on nor off");
  EXPECT_EQ(with("CP_POOL_PEER_COPIES", "on"), "");
  EXPECT_EQ(with("NCCL_P2P_DISABLE", "1"), "NCCL_P2P_DISABLE is 1");
}

TEST_F(PeerEnvironment, RanksThatShareAGpuHeedTheirOwnVariableAlone) {
  setenv("NCCL_P2P_DISABLE", "1", /*overwrite=*/1);
  EXPECT_EQ(peer_copies_forbidden(/*shares=*/true), "");
  setenv("CP_POOL_PEER_COPIES", "off", /*overwrite=*/1);
  EXPECT_EQ(peer_copies_forbidden(/*shares=*/true), "CP_POOL_PEER_COPIES is off");
}

}  // namespace
}  // namespace cp_pool
