#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/case_id.h"

namespace cp_pool {
namespace {

TEST(CaseFileName, IsTheIdWithoutFolders) {
  EXPECT_EQ(case_file_name("te-flash/cp_2_0/a2a+p2p/cp4/thd/bf16"), "te-flash__cp_2_0__a2a+p2p__cp4__thd__bf16");
  EXPECT_EQ(case_file_name(std::string(200, 'm')), std::string(200, 'm'));
}

TEST(CaseFileName, OfALongIdIsItsBeginningAndAHash) {
  const std::string id(300, 'm');
  const std::string name = case_file_name(id);
  EXPECT_EQ(name.size(), 200U);
  EXPECT_THAT(name, testing::MatchesRegex("m+-[0-9a-f]{16}"));
  EXPECT_NE(name, case_file_name(id + "m"));
}

// Names are UTF-8 on many file systems.
TEST(CaseFileName, IsNotCutInsideALetter) {
  const std::string e = "\u00e9";  // two bytes
  for (const char* const first : {"", "a"}) {
    std::string id = first;
    while (id.size() < 300) id += e;
    const std::string name = case_file_name(id);
    const std::string beginning = name.substr(0, name.rfind('-'));
    EXPECT_EQ((beginning.size() - std::string(first).size()) % 2, 0U) << name;
    EXPECT_LE(name.size(), 200U);
  }
}

}  // namespace
}  // namespace cp_pool
