#include "cp_core/run_case/dump.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cases/case_json.h"
#include "cases/testing/file_size_limit.h"
#include "cp_core/run_case/run_case.h"
#include "cp_core/testing/cases_on_threads.h"
#include "cp_core/testing/ranks_on_threads.h"

namespace cp_pool::verify {
namespace {

class DumpTest : public testing::Test {
 public:
  DumpTest(const DumpTest&) = delete;
  DumpTest& operator=(const DumpTest&) = delete;

 protected:
  DumpTest() : folder_(std::filesystem::temp_directory_path() / fmt::format("dump_test.{}", getpid())) {}
  ~DumpTest() override { std::filesystem::remove_all(folder_); }

  void dump(const Case& c, const std::string& id) const {
    RunOptions options;
    options.dump_dir = folder_;
    options.id = id;
    run_ranks(c.cp_size, [&](const CpGroups& groups, int) {
      EXPECT_EQ(run_case(c, groups, options).reason, "") << test::text_of(c);
    });
  }

  // Runs the checker on all dumps and returns its exit code.
  [[nodiscard]] int check() const {
    return WEXITSTATUS(std::system(
        fmt::format("'{0}/.venv/bin/python' '{0}/tools/check_dump.py' '{1}'", CP_POOL_SOURCE_DIR, folder_.string())
            .c_str()));
  }

  [[nodiscard]] nlohmann::json header_of(const std::string& file) const {
    std::ifstream stream(folder_ / file, std::ios::binary);
    std::uint64_t length = 0;
    stream.read(reinterpret_cast<char*>(&length), sizeof length);
    std::string text(length, '\0');
    stream.read(text.data(), static_cast<std::streamsize>(length));
    return nlohmann::json::parse(text);
  }

  std::filesystem::path folder_;
};

TEST_F(DumpTest, HasTheCaseAndEveryTensorInTheLayoutOfTheCase) {
  Case c = test::small_case();
  c.layout = Layout::sbhd;
  c.bias = BiasShape::shape_11ss;
  c.softmax = SoftmaxType::learnable;
  c.max_logit = true;
  dump(c, "suite/model/p2p");
  const auto header = header_of("suite__model__p2p.safetensors");
  EXPECT_EQ(parse_case_text(header["__metadata__"]["case"].get<std::string>(), "dump"), c);
  for (const char* name : {"q", "k", "v", "dout", "out", "dq", "dk", "dv"}) {
    EXPECT_EQ(header[name]["shape"], (std::vector<std::int64_t>{16, 2, 2, 8})) << name;
  }
  EXPECT_EQ(header["lse"]["shape"], (std::vector<std::int64_t>{2, 2, 16}));
  for (const char* name : {"bias", "dbias"}) {
    EXPECT_EQ(header[name]["shape"], (std::vector<std::int64_t>{1, 1, 16, 16})) << name;
  }
  for (const char* name : {"sink", "dsink", "max_logit"}) EXPECT_EQ(header[name]["shape"], std::vector{2}) << name;
  EXPECT_EQ(header["cu_seqlens_q_padded"]["shape"], std::vector{3});
}

TEST_F(DumpTest, OfRandomCasesIsRightByTheIndependentChecker) {
  std::mt19937_64 generator(11);
  for (int i = 0; i < 60;) {
    const Case c = test::random_case(generator);
    if (skip_reason(c).empty()) dump(c, fmt::format("random/{}", i++));
  }
  EXPECT_EQ(check(), 0);
}

TEST_F(DumpTest, ThatWasTamperedWithIsWrongByTheIndependentChecker) {
  dump(test::small_case(), "case");
  const auto file = folder_ / "case.safetensors";
  const auto header = header_of("case.safetensors");
  const std::size_t data = (8 + header.dump().size() + 7) / 8 * 8;
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekp(static_cast<std::streamoff>(data + header["dk"]["data_offsets"][0].get<std::size_t>()));
  const float other = 1000;
  stream.write(reinterpret_cast<const char*>(&other), sizeof other);
  stream.close();
  EXPECT_EQ(check(), 1);
}

// The verdict stays a pass, and no part of the unwritten dump is left behind.
TEST_F(DumpTest, ThatCannotBeWrittenIsNamedByRankZeroAndChangesNoVerdict) {
  const Case c = test::small_case();
  RunOptions options;
  options.id = "case";
  const auto lost_in = [&](const std::filesystem::path& folder) {
    options.dump_dir = folder;
    std::vector<RankReport> reports(static_cast<std::size_t>(c.cp_size));
    run_ranks(c.cp_size, [&](const CpGroups& groups, int rank) {
      reports[static_cast<std::size_t>(rank)] = run_case(c, groups, options);
    });
    for (const RankReport& report : reports) EXPECT_EQ(report.outcome, CaseOutcome::pass) << report.reason;
    for (std::size_t rank = 1; rank < reports.size(); ++rank) EXPECT_TRUE(reports[rank].lost_outputs.empty());
    EXPECT_EQ(reports[0].lost_outputs.size(), 1U);
    return reports[0].lost_outputs.empty() ? LostOutput{} : reports[0].lost_outputs[0];
  };
  {
    const cp_pool::test::FileSizeLimit limit(4096);
    const LostOutput lost = lost_in(folder_);
    EXPECT_EQ(lost.output, "dump");
    EXPECT_EQ(lost.message, fmt::format("cannot write {}: File too large", (folder_ / "case.safetensors").string()));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  std::ofstream(folder_ / "file") << "x";
  EXPECT_EQ(lost_in(folder_ / "file/below").message,
            fmt::format("cannot write {}: Not a directory", (folder_ / "file/below").string()));
}

}  // namespace
}  // namespace cp_pool::verify
