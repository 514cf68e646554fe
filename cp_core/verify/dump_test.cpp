#include "cp_core/verify/dump.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cases/case_json.h"
#include "cp_core/comm/local_communicator.h"
#include "cp_core/verify/run_case.h"
#include "cp_core/verify/test_support.h"

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

  // Exit code of the checker over all dumps.
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

}  // namespace
}  // namespace cp_pool::verify
