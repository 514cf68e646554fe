#include <algorithm>

#include <gmock/gmock.h>

#include "cases/testing/temporary_folder.h"
#include "driver/cli/commands/command_options.h"
#include "driver/cli/select/submitted_case.h"
#include "driver/cli/testing/parsed_command_line.h"

namespace cp_pool::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A matrix of cases on 2 ranks and optional cases on 4 ranks.
class OptionalCases : public ::testing::Test {
 protected:
  OptionalCases() {
    std::ofstream(path_) << R"({"suite":"s","sizes":{"small":{}},"axes":{"cp_size":[2,4]},"optional":["tag=wide"],
      "rules":[{"when":"cp_size=4","tags":["wide"]}],"defaults":{"seqlen_q":64,"seqlen_kv":64,"heads":4,"kv_heads":4,
      "head_dim_qk":8,"head_dim_v":8},"models":{"m":{}}})";
  }

  [[nodiscard]] std::vector<std::string> selected(std::vector<std::string> filters,
                                                  std::optional<std::set<std::string>> ids = {}) const {
    SelectionOptions options;
    options.matrices = {path_};
    options.filters = std::move(filters);
    options.size = "small";
    options.ids = std::move(ids);
    std::vector<std::string> found;
    for (const SelectedCase& c : select_cases(options).cases) found.push_back(c.matrix_case.id);
    return found;
  }

  const std::string two_ = "s/m/p2p/cp2/bshd/bf16";
  const std::string four_ = "s/m/p2p/cp4/bshd/bf16";
  const TemporaryFolder folder_;
  const std::string path_ = (folder_.path() / "m.json").string();
};

TEST_F(OptionalCases, AreLeftOutOnlyWhereNothingIsAskedFor) {
  EXPECT_THAT(selected({}), ElementsAre(two_));
  EXPECT_THAT(selected({"tag=wide"}), ElementsAre(four_));
  EXPECT_THAT(selected({"comm=p2p"}), ElementsAre(two_, four_));
  EXPECT_THAT(selected({four_}), ElementsAre(four_));
  EXPECT_THAT(selected({"!tag=wide"}), ElementsAre(two_));
}

TEST_F(OptionalCases, AreFoundByTheirIds) {
  EXPECT_THAT(selected({}, std::set{four_}), ElementsAre(four_));
  SelectionOptions options;
  options.matrices = {path_};
  options.size = "small";
  EXPECT_EQ(find_case(four_, options, {}, {}, "cp-pool").id, four_);
}

TEST(Options, WhereAnIdIsLookedUpIsNotForAFileOrAStream) {
  EXPECT_THAT(usage_error({"submit", "a.json", "--matrix", "quick"}),
              HasSubstr("--matrix is for the ID of a case, and a.json is a file (see cp-pool submit --help)"));
  EXPECT_THAT(usage_error({"submit", "-", "--size", "full"}),
              HasSubstr("--size is for the ID of a case, and - is a stream"));
  EXPECT_THAT(usage_error({"explain", "a.json", "--size", "full"}), HasSubstr("(see cp-pool explain --help)"));
}

TEST(ShardOption, IsOneOfRunAndList) {
  EXPECT_EQ(parse_as<RunCommandOptions>({"run"}).selection.shard.count, 1U);
  EXPECT_EQ(parse_as<RunCommandOptions>({"run", "--shard", "2/4"}).selection.shard.index, 2U);
  EXPECT_EQ(parse_as<ListOptions>({"list", "--shard", "4/5"}).selection.shard.count, 5U);
  EXPECT_THAT(usage_error({"run", "--shard", "5/4"}), HasSubstr("'5/4' is none of 1/N, 2/N .. N/N"));
}

using Indices = std::vector<std::size_t>;

Indices indices(const char* text, std::size_t count) {
  return ordered_indices(count, parse_order(text).value());
}

TEST(Order, ListedAndReverseAreWhatTheySay) {
  EXPECT_EQ(indices("listed", 4), (Indices{0, 1, 2, 3}));
  EXPECT_EQ(indices("reverse", 4), (Indices{3, 2, 1, 0}));
  EXPECT_EQ(indices("reverse", 0), Indices{});
}

TEST(Order, AShuffleHoldsEverythingAndItsSeedGivesTheSameOrderAgain) {
  const Indices order = indices("shuffle:7", 50);
  EXPECT_EQ(order, indices("shuffle:7", 50));
  EXPECT_NE(order, indices("shuffle:8", 50));
  EXPECT_NE(order, indices("listed", 50));
  Indices sorted = order;
  std::ranges::sort(sorted);
  EXPECT_EQ(sorted, indices("listed", 50));
  EXPECT_EQ(indices("shuffle:7", 5), (Indices{1, 3, 4, 2, 0}));  // the same on every machine
}

TEST(Order, AShuffleWithoutASeedTellsTheOneItGot) {
  Order order = parse_order("shuffle").value();
  const std::string text = fix_seed(order);
  EXPECT_THAT(text, ::testing::StartsWith("shuffle:"));
  EXPECT_EQ(ordered_indices(50, order), ordered_indices(50, parse_order(text).value()));
}

TEST(Order, OfAHistoryNamesItsFile) {
  Order order = parse_order("history:runs/last.jsonl").value();
  EXPECT_EQ(order.kind, Order::Kind::history);
  EXPECT_EQ(order.events, "runs/last.jsonl");
  EXPECT_EQ(fix_seed(order), "history:runs/last.jsonl");
  order = parse_order("history").value();
  EXPECT_EQ(order.kind, Order::Kind::history);
  EXPECT_EQ(fix_seed(order), "history");
}

TEST(Order, RefusesEverythingElse) {
  for (const char* text :
       {"", "history:", "random", "shuffle:", "shuffle:x", "shuffle:-1", "shuffle:1 ", "reverse:1"}) {
    EXPECT_FALSE(parse_order(text)) << text;
  }
}

TEST(ItemOfASelectedCase, HasTheCommandThatRunsTheCaseAlone) {
  SelectedCase selected{.matrix_case = {}, .matrix = "te-flash"};
  selected.matrix_case.id = "te-flash/cp_2_0/a2a+p2p/cp4/thd/bf16/pad";
  selected.matrix_case.size = "small";
  EXPECT_EQ(item_of(selected, "build/release/bin/cp-pool", {}).rerun,
            "build/release/bin/cp-pool run --matrix te-flash --size small "
            "--filter te-flash/cp_2_0/a2a+p2p/cp4/thd/bf16/pad");
}

}  // namespace
}  // namespace cp_pool::test
