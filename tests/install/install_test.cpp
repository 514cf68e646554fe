// An installation that was moved after it was made: nothing in it may refer to its first place or to the build folder.
#include "driver/cli/testing/started_program.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

class Installation : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path first = folder_ / "first";
    const Finished done = run_to_end({CP_POOL_CMAKE, "--install", CP_POOL_BUILD, "--prefix", first.string()});
    ASSERT_EQ(done.exit_code, 0) << done.err;
    std::filesystem::rename(first, prefix_);
  }

  [[nodiscard]] std::string path(const std::string& name) const { return (prefix_ / name).string(); }

  // The CUDA part is built only together with the programs that need a GPU, so tools/test does not build it.
  [[nodiscard]] static bool has_cuda_part() { return std::filesystem::exists(CP_POOL_BUILD "/bin/libcp_core_cuda.so"); }

  TemporaryFolder folder_;
  std::filesystem::path prefix_ = folder_ / "a prefix";
};

TEST_F(Installation, RunsWithItsOwnMatricesAndWorker) {
  std::filesystem::rename(path("share/cp-pool/matrices/quick.json"), path("share/cp-pool/matrices/mine.json"));
  const Finished done =
      run_to_end({path("bin/cp-pool"), "run", "--matrix", "mine", "--filter", "quick/causal/p2p/cp2/bshd/fp32"});
  EXPECT_THAT(done, exits(0, last_line(HasSubstr("1 expanded = 1 pass"))));
  // The exit code is not tested: while the source tree exists, doctor also checks its packages.
  const Finished doctor = run_to_end({path("bin/cp-pool"), "doctor"});
  EXPECT_THAT(doctor.out, AllOf(HasSubstr(path("bin/cp-pool-worker")), HasSubstr("pass after")));
  for (const char* file : {"share/man/man1/cp-pool.1", "share/bash-completion/completions/cp-pool",
                           "share/zsh/site-functions/_cp-pool", "share/fish/vendor_completions.d/cp-pool.fish",
                           "share/doc/cp-pool/docs/protocol.schema.json", "share/doc/cp-pool/LICENSE"}) {
    EXPECT_TRUE(std::filesystem::is_regular_file(prefix_ / file)) << file;
  }
  const std::string example = "'" + path("share/doc/cp-pool/docs/examples/minimal_worker.py") + "'";
  const Finished foreign =
      run_to_end({path("bin/cp-pool"), "run", "--filter", "quick/causal/p2p/cp2/bshd/fp32", "--worker", example});
  EXPECT_THAT(foreign.last_line(), HasSubstr("1 expanded = 1 pass")) << foreign.err;
}

TEST_F(Installation, FindsItsLibrariesWithoutTheSourceTree) {
  std::vector<std::string> files = {path("bin/cp-pool"), path("bin/cp-pool-worker")};
  if (has_cuda_part()) files.push_back(path("lib/cp-pool/libcp_core_cuda.so"));
  for (const std::string& file : files) {
    EXPECT_THAT(run_to_end({"ldd", file}), exits(0, out(HasSubstr("libc.so.6 => "), Not(HasSubstr("not found")),
                                                        Not(HasSubstr("/.venv/")), Not(HasSubstr(CP_POOL_BUILD)))))
        << file;
  }
}

TEST_F(Installation, LoadsTheCudaPartFromItsFolder) {
  if (!has_cuda_part()) GTEST_SKIP() << "not built: tools/build release cuda_part";
  const auto error = [&] {
    return run_to_end({path("bin/cp-pool"), "run", "--filter", "quick/causal/p2p/cp2/bshd/fp32", "--device", "cuda"})
        .out;
  };
  // No GPU is visible to this test, or there is none. That error shows that the CUDA part was loaded.
  EXPECT_THAT(error(), AnyOf(HasSubstr("no usable GPU"), HasSubstr("fewer devices")));
  std::filesystem::remove(path("lib/cp-pool/libcp_core_cuda.so"));
  EXPECT_THAT(error(), HasSubstr("neither beside this program nor in ../lib/cp-pool"));
}

}  // namespace
}  // namespace cp_pool::test
