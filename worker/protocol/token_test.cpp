#include <gtest/gtest.h>

#include "worker/protocol/environment.h"

namespace cp_pool::protocol {
namespace {

TEST(Token, HasThirtyTwoDigitsAndIsNewEachTime) {
  const std::string token = random_token();
  EXPECT_EQ(token.size(), 32U);
  EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos) << token;
  EXPECT_NE(random_token(), token);
}

TEST(Token, IsTheSameOnlyIfEveryByteIs) {
  const std::string token = random_token();
  EXPECT_TRUE(is_same_secret(token, token));
  for (std::size_t i = 0; i < token.size(); ++i) {
    std::string other = token;
    other[i] = other[i] == '0' ? '1' : '0';
    EXPECT_FALSE(is_same_secret(other, token)) << i;
  }
  EXPECT_FALSE(is_same_secret("", token));
  EXPECT_FALSE(is_same_secret(token.substr(1), token));
  EXPECT_FALSE(is_same_secret(token + "0", token));
}

}  // namespace
}  // namespace cp_pool::protocol
