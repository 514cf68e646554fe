#include "worker/group_differences.h"

#include <utility>

#include <gmock/gmock.h>

namespace cp_pool {
namespace {

GroupOperation collective(const std::string& name, std::int64_t bytes = 16, std::vector<int> members = {0, 1, 2}) {
  return {.name = name,
          .group = "group of " + std::to_string(members.size()),
          .members = std::move(members),
          .tensor = "float32 [" + std::to_string(bytes / 4) + "]",
          .bytes = bytes};
}

GroupOperation message(const std::string& name, int peer, std::int64_t bytes = 16) {
  GroupOperation out = collective(name, bytes);
  out.peer = peer;
  return out;
}

const GroupOperation kGather = collective("all_gather");
const GroupOperation kReduce = collective("all_reduce");

TEST(GroupDifferences, AreNoneIfAllRanksHaveBegunTheSame) {
  EXPECT_EQ(group_differences({{0, {kGather, kReduce}}, {1, {kGather, kReduce}}}, true), "");
  EXPECT_EQ(group_differences(
                {{0, {message("send", 1), message("recv", 1)}}, {1, {message("recv", 0), message("send", 0)}}}, true),
            "");
}

TEST(GroupDifferences, NameTheRankThatDoesNotEnterACollective) {
  const std::vector<GroupHistory> ranks{{0, {kReduce, kGather}}, {1, {kReduce, kGather}}, {2, {kReduce}, true}};
  EXPECT_EQ(group_differences(ranks, true), "rank 2 left without entering all_gather #2; the others wait in it");
  EXPECT_EQ(group_differences(ranks, false), "") << "it may have been on its way";
  EXPECT_EQ(group_differences({ranks[0], {2, {kReduce}, false}}, true),
            "rank 2 has not entered all_gather #2; rank 0 waits in it");
  EXPECT_EQ(group_differences({ranks[0], {1, {}, true}, {2, {}, true}}, true),
            "rank 1 and rank 2 left without entering all_reduce #1; rank 0 entered it");
  EXPECT_EQ(group_differences({ranks[0], {2, {kReduce}, true, true}}, true),
            "rank 2, which has no tokens, left without entering all_gather #2; rank 0 waits in it");
}

TEST(GroupDifferences, NameCollectivesThatAreNotTheSame) {
  EXPECT_EQ(group_differences({{1, {kReduce, kGather}}, {0, {kGather, kReduce}}}, false),
            "as collective #1 of ranks 0, 1, 2, rank 0 entered all_gather of float32 [4], and rank 1 all_reduce of "
            "float32 [4]");
  EXPECT_EQ(group_differences({{0, {kReduce}}, {1, {collective("all_reduce", 32)}}}, false),
            "as collective #1 of ranks 0, 1, 2, rank 0 entered all_reduce of float32 [4], and rank 1 all_reduce of "
            "float32 [8]");
  EXPECT_EQ(group_differences({{0, {collective("all_to_all")}}, {1, {collective("all_to_all", 32)}}}, false), "");
  GroupOperation from_0 = collective("broadcast");
  GroupOperation from_1 = from_0;
  from_0.peer = 0;
  from_1.peer = 1;
  EXPECT_EQ(group_differences({{0, {from_0}}, {1, {from_1}}}, false),
            "as collective #1 of ranks 0, 1, 2, rank 0 entered broadcast of float32 [4], with root 0, and rank 1 "
            "broadcast of float32 [4], with root 1");
}

TEST(GroupDifferences, CountEachGroupByItself) {
  const GroupOperation of_two = collective("all_reduce", 16, {0, 1});
  EXPECT_EQ(group_differences({{0, {kReduce, of_two}}, {1, {of_two, kReduce}}}, true), "");
  EXPECT_EQ(group_differences({{0, {of_two}}, {1, {kReduce}}, {2, {kReduce}}}, true),
            "rank 1 has not entered all_reduce #1 of ranks 0, 1; rank 0 waits in it; "
            "rank 0 has not entered all_reduce #1; the others wait in it");
}

TEST(GroupDifferences, NameMessagesThatDoNotMeet) {
  EXPECT_EQ(group_differences({{0, {message("send", 2)}}, {1, {message("recv", 0)}}, {2, {}, true}}, true),
            "rank 0 has not sent message #1 to rank 1, which waits for it; "
            "rank 2 left without receiving message #1 from rank 0");
  EXPECT_EQ(group_differences({{0, {message("send", 1), message("recv", 1)}}, {1, {}, true, true}}, true),
            "rank 1, which has no tokens, left without sending message #1 to rank 0, which waits for it; "
            "rank 1, which has no tokens, left without receiving message #1 from rank 0");
  EXPECT_EQ(group_differences({{0, {message("send", 1)}}, {1, {message("recv", 0, 32)}}}, false),
            "rank 0 sends message #1 to rank 1 as float32 [4], and there it is received as float32 [8]");
  EXPECT_EQ(group_differences({{0, {message("send", 1)}}, {1, {message("recv", -1)}}}, true), "");
}

TEST(GroupDifferences, TheLastOperationIsNamedWithItsNumberShapeAndRanks) {
  EXPECT_EQ(last_group_operation({0, {}}), "");
  EXPECT_EQ(last_group_operation({0, {kReduce, kGather}}), "all_gather #2 of float32 [4], on ranks 0, 1, 2");
  EXPECT_EQ(last_group_operation({0, {kReduce, message("send", 1), message("recv", 2), message("send", 1)}}),
            "send #2 of float32 [4], to rank 1");
}

}  // namespace
}  // namespace cp_pool
