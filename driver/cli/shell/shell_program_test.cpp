// Tests `cp-pool shell` with lines from a file: the cases that it runs, its output, and what is left after it.
#include <regex>
#include <sys/stat.h>
#include <thread>

#include "cases/unique_fd.h"
#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

constexpr const char* kFields =
    "cp_size=1 batch=1 seqlen_q=16 seqlen_kv=16 heads=1 kv_heads=1 head_dim_qk=8 head_dim_v=8 model=";

class ShellProgram : public CommandLine {
 protected:
  [[nodiscard]] Words words(const Words& more = {}) const {
    return with({kProgram, "shell", "--matrix", path("demo.json"), "--worker", kWorker, "--grace", "100ms"}, more);
  }
  Finished shell(const std::string& lines, const Words& more = {}) {
    write_file(path("lines"), lines);
    return run_to_end(words(more), {.in = path("lines")});
  }
  // Returns the requests to run a case, in the order in which the worker got them.
  [[nodiscard]] std::vector<nlohmann::json> requests() const {
    std::vector<nlohmann::json> out = json_lines(read_file(folder / "requests"));
    std::erase_if(out, [](const nlohmann::json& request) { return request["op"] != "run"; });
    return out;
  }
  // Returns the names of sockets and other files that services left.
  [[nodiscard]] std::vector<std::string> left_behind() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator{folder / "cp-pool"}) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
  [[nodiscard]] bool is_there(const std::string& service) { return call({"status", "--name", service}).exit_code == 0; }

  const std::string requests_path = path("requests");
  ScopedVariable runtime{"XDG_RUNTIME_DIR", folder.path().c_str()};
  ScopedVariable state{"XDG_STATE_HOME", path("state").c_str()};
  ScopedVariable noted{"CP_POOL_TEST_REQUESTS", requests_path.c_str()};
};

TEST_F(ShellProgram, KeepsRanksWarmFromCaseToCaseAndComparesResults) {
  const Finished done =
      shell(std::string{"# a comment\n\n"} + kPass + "\nset window=4,0\nagain\ndiff\nstatus\nquit\nlst\n");
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, Not(HasSubstr("cp-pool>"))) << "there is nobody to prompt";
  EXPECT_THAT(done.out, HasSubstr(std::string{"before: "} + kPass + "\nnow:    " + kPass + "/window=4,0\n"));
  EXPECT_TRUE(std::regex_search(done.out, std::regex{"\nwindow +-1,-1 +4,0\n"})) << done.out;
  EXPECT_THAT(done.out, HasSubstr("the same: outcome pass, 1 check, outputs of 1 rank\n"));
  EXPECT_TRUE(std::regex_search(done.out, std::regex{"cpu/1 #1 +idle .* 2 cases"})) << "one pool ran both";
  ASSERT_EQ(requests().size(), 2U);
  EXPECT_EQ(requests()[0]["case"]["window"], (nlohmann::json{-1, -1}));
  EXPECT_EQ(requests()[1]["case"]["window"], (nlohmann::json{4, 0}));
  EXPECT_THAT(left_behind(), IsEmpty()) << "its service has ended";
  EXPECT_FALSE(std::filesystem::exists(folder / "state")) << "only what is typed is kept";
}

TEST_F(ShellProgram, ExitCodeIsTheFirstOfTheTableThatALineHad) {
  const Finished failed = shell(std::string{"lst\n"} + kFail + "\n" + kPass + "\ndiff 3\n");
  EXPECT_EQ(failed.exit_code, 100);
  EXPECT_THAT(failed.err,
              AllOf(HasSubstr("cp-pool: error: 'lst' is no command of the shell and no case; did you mean 'list'?"),
                    HasSubstr("cp-pool: error: diff: unexpected argument '3'")));
  EXPECT_THAT(shell("lst\nlist demo/pass*\n"),
              exits(2, out(kPass + "\ndemo/pass_2/p2p/cp1/bshd/fp32\n"), err(is_one_error("'lst'"))));
  EXPECT_THAT(shell("demo/pas/p2p/cp1/bshd/fp32\nset comm=p3p\n"),
              exits(94, err(HasSubstr("did you mean 'demo/pass/p2p/cp1/bshd/fp32'?"))));
}

TEST_F(ShellProgram, SaysWhyACaseOfFieldsFailedAndItsRerunCommandWorks) {
  const Finished done = shell(std::string{kFields} + "diagnosed\n" + kPass + "\nwhy\n");
  EXPECT_EQ(done.exit_code, 100) << done.err;
  const std::string why = done.out.substr(done.out.rfind("\nfail  adhoc/diagnosed/"));
  EXPECT_THAT(why, AllOf(HasSubstr("    cause (likely): the mask is <missing>"), HasSubstr("every query saw every key"),
                         HasSubstr("rank 0: dq: error 0.5 > bound 0.25"), HasSubstr("| stderr of adhoc/diagnosed/")));
  const std::string rerun = why.substr(why.find("rerun: ") + 7);
  EXPECT_EQ(run_to_end({"sh", "-c", rerun}).exit_code, 100) << rerun;
}

TEST_F(ShellProgram, DumpsAndExplainsTheLastCase) {
  const Finished done = shell(std::string{kFields} + "pass\ndump " + path("tensors") + "\nexplain\n");
  EXPECT_EQ(done.exit_code, 0) << done.err;
  ASSERT_EQ(requests().size(), 2U);
  EXPECT_TRUE(requests()[0]["options"]["dump_dir"].is_null());
  EXPECT_EQ(requests()[1]["options"]["dump_dir"], path("tensors"));
  EXPECT_EQ(requests()[0]["case"], requests()[1]["case"]);
  EXPECT_THAT(done.out, HasSubstr("\nadhoc/pass/p2p/cp1/bshd/bf16/hash="));
}

TEST_F(ShellProgram, UsesAServiceThatIsThere) {
  Program serve{{kProgram, "serve"}};
  while (!is_there("default")) std::this_thread::yield();
  EXPECT_THAT(shell(kPass + "\nstatus\n"),
              exits(0, err(HasSubstr("on service 'default'"), Not(HasSubstr("is started"))),
                    out(HasSubstr("\nservice 'default', process " + std::to_string(serve.pid())))));
  EXPECT_TRUE(is_there("default")) << "it outlives the shell";
  EXPECT_EQ(call({"stop"}).exit_code, 0);
  EXPECT_EQ(serve.wait().exit_code, 0);
}

TEST_F(ShellProgram, NeedsAServiceThatIsNamed) {
  EXPECT_THAT(shell(kPass + "\n", {"--service", "nightly"}),
              refuses(96, "service 'nightly' is not running; start it with cp-pool serve --name nightly"));
}

TEST_F(ShellProgram, RunsOnPoolsOfItsOwnWhereAnOptionNeedsThem) {
  EXPECT_THAT(shell(kPass + "\nagain --isolate\n"), exits(0, err(Not(HasSubstr("error")))));
  EXPECT_THAT(shell(kPass + "\n", {"--isolate"}), exits(0, err(Not(HasSubstr("service")))));
}

TEST_F(ShellProgram, PassesOptionsOnAndLetsALineHaveItsOwn) {
  EXPECT_THAT(shell("demo/hang/p2p/cp1/bshd/fp32\nagain --timeout 150ms\n", {"--timeout", "100ms"}),
              exits(100, out(HasSubstr("no result within 100 ms (--timeout)"),
                             HasSubstr("no result within 150 ms (--timeout)"))));
}

TEST_F(ShellProgram, ThatIsKilledTakesItsServiceAlong) {
  ASSERT_EQ(::mkfifo(path("typed").c_str(), 0600), 0);
  Program program{words(), {.in = path("typed")}};
  const UniqueFd typed{::open(path("typed").c_str(), O_WRONLY)};
  const std::string line = "demo/hang/p2p/cp1/bshd/fp32\n";
  ASSERT_EQ(::write(typed.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
  while (!std::filesystem::exists(requests_path)) std::this_thread::yield();  // waits until the case runs
  const std::string service = "shell-" + std::to_string(program.pid());
  EXPECT_TRUE(is_there(service));
  program.signal(SIGKILL);
  EXPECT_THAT(program.wait().err, StartsWith("cp-pool: service '" + service + "' (process "));
  while (is_there(service)) std::this_thread::yield();
}

}  // namespace
}  // namespace cp_pool::test
