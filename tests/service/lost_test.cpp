// `cp-pool submit` and `cp-pool run` with a service that is missing, has another version, is stopped, or is lost in the
// middle of a run.
#include <sys/socket.h>
#include <sys/un.h>

#include <fmt/format.h>

#include "tests/service/testing/service_fixture.h"

namespace cp_pool::service_test {
namespace {

using namespace ::testing;

class Lost : public Service {
 protected:
  // The events of a submit that has ended.
  [[nodiscard]] std::vector<json> events() const { return json_lines(read_file(path("events"))); }
  // Starts a submit of two cases, of which the first runs on the service and the second waits.
  Program start_submit(const Words& more = {}, const std::string& first = "hang") {
    return Program{with(submit_words({"--jobs", "2", "--events", path("events")}), more),
                   {.in = stream_of({first, "pass"})}};
  }
  static void wait_for(const std::string& case_id) {
    RawClient client = RawClient::greeted();
    wait_until("the case runs, and another waits", [&] {
      const json status = client.status();
      std::size_t unfinished = 0;
      for (const json& one : status["clients"]) unfinished += one["unfinished"].get<std::size_t>();
      return unfinished == 2 && !status["pools"].empty() && status["pools"][0].value("runs", "") == case_id;
    });
  }
};

// --- Which one is used -----------------------------------------------------------------------------------------------

TEST_F(Lost, SubmitSaysWhichServiceItIsOn) {
  const StartedService service({"--slots", "1"});
  const StartedService named({"--slots", "1"}, "named");
  EXPECT_THAT(submit({"pass"}).err, HasSubstr(fmt::format("on service 'default' (process {})", service.pid())));
  EXPECT_THAT(submit({"pass"}, {"--service", "named"}).err,
              HasSubstr(fmt::format("on service 'named' (process {})", named.pid())));
  EXPECT_THAT(submit({"pass"}, {"--no-service"}).err, Not(HasSubstr("service")));
  EXPECT_EQ(RawClient::greeted().status()["counts"]["pass"], 1);
  EXPECT_EQ(RawClient::greeted("named").status()["counts"]["pass"], 1);
}

TEST_F(Lost, ARunOnAServiceIsRecordedAsAnyRun) {
  const StartedService service({"--slots", "1"});
  EXPECT_THAT(run("model=pass | model=fail", {"--mode", "verify", "--service"}), exits(100));
  const json runs = json::parse(call({"runs", "--json"}).out);
  ASSERT_EQ(runs.size(), 1U) << runs.dump();
  EXPECT_EQ(runs[0]["exit_code"], 100);
  EXPECT_THAT(runs[0]["command"], HasSubstr(" --service"));
  EXPECT_EQ(runs[0]["counts"]["pass"], 1);
  EXPECT_EQ(runs[0]["counts"]["fail"], 1);
  EXPECT_THAT(call({"show", "last"}).out, HasSubstr(kFail));
}

TEST_F(Lost, SubmitRunsByItselfWhereNoneIs) {
  const Finished done = submit({"pass"}, {"--json"});
  EXPECT_THAT(done, exits(0, err(IsEmpty())));
  EXPECT_EQ(json::parse(done.out)["outcome"], "pass");
}

TEST_F(Lost, AWantedOneThatIsNotThereIsAnErrorThatSaysHowToStartIt) {
  EXPECT_THAT(submit({"pass"}, {"--service", "far"}), refuses(96, "cp-pool serve --name far"));
  EXPECT_THAT(run("model=pass", {"--mode", "verify", "--service"}),
              refuses(96, "service 'default' is not running; start it with cp-pool serve"));
}

TEST_F(Lost, OptionsThatWantOwnPoolsRunWithoutItAndSaySo) {
  const StartedService service({"--slots", "1"});
  EXPECT_THAT(submit({"pass"}, {"--isolate"}), exits(0, err(HasSubstr("this run does not use service 'default'"),
                                                            HasSubstr("because --isolate needs pools of its own"))));
  EXPECT_THAT(submit({"pass"}, {"--isolate", "--service", "default"}).err, is_one_error("contradicts --service"));
}

// --- Another version -------------------------------------------------------------------------------------------------

// A service that sends one line to each client and closes the connection.
class Speaker {
 public:
  explicit Speaker(const std::string& line)
      : service_(service::socket_path("default")), thread_([this, line](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            const UniqueFd client{::accept(service_.fd(), nullptr, nullptr)};
            if (client) (void)::send(client.get(), line.data(), line.size(), MSG_NOSIGNAL);
            char byte = 0;
            while (client && ::recv(client.get(), &byte, 1, 0) == 1 && byte != '\n') {
            }
          }
        }) {}
  ~Speaker() {
    thread_.request_stop();
    ::shutdown(service_.fd(), SHUT_RDWR);
  }

 private:
  service::ListeningService service_;
  std::jthread thread_;
};

TEST_F(Lost, AServiceOfAnotherVersionIsASentence) {
  for (const json& line : {json{{"reply", "refused"}, {"message", "speaks version 2 of its protocol"}, {"fatal", true}},
                           json{{"reply", "welcome"}, {"protocol", 2}, {"version", "9.9"}, {"pid", 1}}}) {
    const Speaker speaker(line.dump() + '\n');
    EXPECT_THAT(submit({"pass"}, {"--service", "default"}), refuses(96, "speaks version 2"));
    const Finished found = submit({"pass"});
    EXPECT_EQ(found.exit_code, 0) << "it runs by itself";
    EXPECT_THAT(found.err, AllOf(HasSubstr("this run does not use a service"), HasSubstr("speaks version 2")));
  }
}

TEST_F(Lost, AServiceThatSpeaksNonsenseIsASentence) {
  const Speaker speaker("220 mail ESMTP\n");
  EXPECT_THAT(submit({"pass"}, {"--service", "default"}), refuses(96, "is not a message of the protocol"));
}

// --- Lost ------------------------------------------------------------------------------------------------------------

TEST_F(Lost, CasesOfAServiceThatIsKilledEndAsInfra) {
  const StartedService service({"--slots", "1"});
  Program program = start_submit();
  wait_for("hang");
  service.signal(SIGKILL);
  EXPECT_THAT(program.wait(), exits(96));
  EXPECT_THAT(outcomes_in(events()), UnorderedElementsAre("hang: infra", "pass: infra"));
  for (const json& event : events_in(path("events"), "case_finished")) {
    EXPECT_THAT(event["reason"].get<std::string>(),
                HasSubstr(fmt::format("service 'default' (process {})", service.pid())));
  }
  EXPECT_EQ(events().back()["type"], "run_finished");
  EXPECT_EQ(events().back()["ledger_exact"], true);
}

TEST_F(Lost, CasesOfAServiceThatIsKilledRunHereIfTheirClientAsksForIt) {
  const StartedService service({"--slots", "1"});
  Program program = start_submit({"--service-lost", "local", "--timeout", "1s"});
  wait_for("hang");
  service.signal(SIGKILL);
  EXPECT_THAT(program.wait(), exits(100));
  EXPECT_THAT(outcomes_in(events()), UnorderedElementsAre("hang: timeout", "pass: pass"));
  EXPECT_EQ(events().back()["ledger_exact"], true);
  EXPECT_EQ(events().back()["expanded"], 2);
}

TEST_F(Lost, AMatrixWhoseServiceIsKilledHasExactBooks) {
  const StartedService service({"--slots", "1"});
  Program program{{kProgram, "run", "--matrix", path("demo.json"), "--filter", "model=hang", "model=pass", "--worker",
                   kWorker, "--grace", "100ms", "--order", "reverse", "--service", "--events", path("events")}};
  RawClient client = RawClient::greeted();
  wait_until("it hangs", [&] {
    const json status = client.status();
    return !status["pools"].empty() && status["pools"][0].value("runs", "").starts_with("demo/hang");
  });
  service.signal(SIGKILL);
  EXPECT_THAT(program.wait(), exits(96));
  EXPECT_EQ(events().back()["ledger_exact"], true);
  EXPECT_GE(events().back()["counts"]["infra"], 1);
}

// --- Stopped ---------------------------------------------------------------------------------------------------------

TEST_F(Lost, CasesOfAServiceThatIsStoppedEndOrAreNotRun) {
  StartedService service({"--slots", "1"});
  Program program = start_submit({}, "until_sigusr1");
  wait_for("until_sigusr1");
  const int rank = RawClient::greeted().status()["pools"][0]["pids"][0];
  Program stop{{kProgram, "stop"}};
  wait_until("it stops", [] {
    try {
      return RawClient::greeted().status()["stopping"] == true;
    } catch (const std::exception&) {
      return true;  // it accepts no client any more
    }
  });
  ::kill(rank, SIGUSR1);
  const Finished done = program.wait();
  EXPECT_THAT(outcomes_in(events()), UnorderedElementsAre("until_sigusr1: pass", "pass: not-run"));
  EXPECT_EQ(events().back()["ledger_exact"], true);
  EXPECT_NE(done.exit_code, 0);
  EXPECT_EQ(stop.wait().exit_code, 0);
  EXPECT_EQ(service.wait().exit_code, 0);
}

// --- status and stop -------------------------------------------------------------------------------------------------

TEST_F(Lost, StatusIsForPeopleAndForPrograms) {
  const StartedService service({"--slots", "2"});
  submit({"pass", "fail", "sigsegv"});
  EXPECT_THAT(call({"status"}),
              exits(0, out(HasSubstr(fmt::format("service 'default', process {}", service.pid())),
                           HasSubstr("of 2 slots"), HasSubstr("cases so far: 1 pass, 1 fail, 1 crash"))));
  const Finished machine = call({"status", "--json"});
  const json status = json::parse(machine.out);
  EXPECT_EQ(status["pid"], service.pid());
  EXPECT_EQ(status["counts"]["crash"], 1);
  EXPECT_EQ(status["clients"][0]["client"], "cp-pool status");
}

TEST_F(Lost, StatusAndStopWithoutAServiceAreErrors) {
  for (const char* command : {"status", "stop"}) {
    EXPECT_THAT(call({command, "--name", "none"}), refuses(96, "service 'none' is not running"));
  }
}

}  // namespace
}  // namespace cp_pool::service_test
