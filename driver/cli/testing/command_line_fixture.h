// A fixture for tests of the command line: the real program on a small matrix with the scripted worker
// (scripted_worker.py).
#pragma once

#include "driver/cli/testing/started_program.h"
#include "driver/testing/scoped_variable.h"

namespace cp_pool::test {

inline const std::string kProgram = CP_POOL_PROGRAM;
inline const std::string kWorker = "python3 '" CP_POOL_SCRIPTED_WORKER "'";

inline constexpr const char* kSizes =
    R"("batch":1,"seqlen_q":16,"seqlen_kv":16,"heads":1,"kv_heads":1,"head_dim_qk":8,"head_dim_v":8)";

// Returns a case in JSON, whose model tells the scripted worker what to answer.
inline std::string case_of(const std::string& model, const std::string& more = R"("cp_size":1,)") {
  return R"({"model":")" + model + R"(",)" + more + kSizes + "}";
}

// IDs of cases of demo.json.
inline const std::string kPass = "demo/pass/p2p/cp1/bshd/fp32";
inline const std::string kFail = "demo/fail/p2p/cp1/bshd/fp32";

// Makes a folder with demo.json: one model for each behaviour of the scripted worker, on one rank.
class CommandLine : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file(folder / "demo.json",
               std::string{R"({"suite":"demo","defaults":{"cp_size":1,"comm":"p2p","layout":"bshd","dtype":"fp32",)"} +
                   kSizes +
                   R"(},"models":{"pass":{},"pass_2":{},"fail":{},"skip":{},"error":{},"crash":{},"hang":{}},)"
                   R"("sizes":{"small":{},"tiny":{"divide":{"seqlen_q":2,"seqlen_kv":2}}}})");
  }

  Finished call(Words words) {
    words.insert(words.begin(), kProgram);
    return run_to_end(std::move(words));
  }

  // Returns the words of `cp-pool run` on demo.json with the scripted worker and short deadlines. One pool works at a
  // time, so that cases end in the same order on any machine; --mode perf does so by itself.
  [[nodiscard]] Words run_words(const std::string& filter, const Words& more = {}) const {
    Words words = {"run",      "--matrix",  (folder / "demo.json").string(),
                   "--filter", filter,      "--worker",
                   kWorker,    "--timeout", "20s",
                   "--grace",  "100ms"};
    if (std::ranges::find(more, "--mode") == more.end()) words.insert(words.end(), {"--slots", "1"});
    return with(std::move(words), more);
  }
  // Returns the same after the name of the program.
  [[nodiscard]] Words program_words(const std::string& filter, const Words& more = {}) const {
    Words words = run_words(filter, more);
    words.insert(words.begin(), kProgram);
    return words;
  }
  Finished run(const std::string& filter, const Words& more = {}) { return call(run_words(filter, more)); }

  [[nodiscard]] std::string path(const std::string& name) const { return (folder / name).string(); }

  TemporaryFolder folder;

 private:
  // The tests find no service of the user who runs them, and record nothing among the user's runs.
  ScopedVariable runtime_folder_{"XDG_RUNTIME_DIR", folder.path().c_str()};
  ScopedVariable state_folder_{"XDG_STATE_HOME", (folder / "state").c_str()};
};

}  // namespace cp_pool::test
