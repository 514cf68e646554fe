// A rank that holds a lifeline and does one thing: `lifeline_rank WHAT [ARGUMENT]`.
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>
#include <unistd.h>

#include <fmt/format.h>

#include "worker/lifeline.h"
#include "worker/protocol/environment.h"
#include "worker/stack_dump.h"

namespace cp_pool {
namespace {

[[noreturn]] void wait_for_ever() {
  for (;;) pause();
}

void say(const std::string& line) {
  const std::string text = line + "\n";
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t written = write(STDERR_FILENO, rest.data(), rest.size());
    if (written <= 0) return;
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

int run(const std::string& what, const std::string& argument) {
  Lifeline& lifeline = *Lifeline::start(protocol::read_environment());
  if (what == "wait") wait_for_ever();
  if (what == "spin") {
    volatile unsigned count = 0;
    for (;;) {
      const unsigned next = count + 1;
      count = next;
    }
  }
  if (what == "flood") {
    say(std::string(std::stoul(argument), 'x'));
    say("last words");
    raise(SIGKILL);
  }
  if (what == "fork") {  // a child that outlives the rank
    if (fork() == 0) {
      sleep(60);
      _exit(0);
    }
    raise(SIGKILL);
  }
  if (what == "dump") {
    install_stack_dump(0);
    say("ready");
    wait_for_ever();
  }
  if (what == "announce") {
    lifeline.tell_rendezvous({"node0", {"10.0.0.1"}, 4711});
    wait_for_ever();
  }
  if (what == "await") {
    const lifeline::Rendezvous where = lifeline.await_rendezvous();
    say(fmt::format("{} {}:{}", where.host, where.addresses.front(), where.port));
    wait_for_ever();
  }
  tell_ending(std::stoi(argument));
  return std::stoi(argument);
}

}  // namespace
}  // namespace cp_pool

int main(int argc, char** argv) {
  const std::string argument = argc > 2 ? argv[2] : "";
  _exit(cp_pool::run(argc > 1 ? argv[1] : "", argument));
}
