// The interface of cp-pool's subcommands, and the command line, which asks for one. One file, x_command.cpp, holds all
// of a subcommand; CONTRIBUTING.md says how to add one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "driver/cli/completion/candidates.h"

namespace cp_pool {

class Configuration;
class ConfiguredApp;

// A subcommand with the command line that was read for it.
class Command {
 public:
  Command() = default;
  Command(const Command&) = delete;  // the parser's options refer to its members
  Command& operator=(const Command&) = delete;
  virtual ~Command() = default;

  // Called before finish if Subcommand::configured is set, when the options of `command` have been read and those that
  // were left out have been filled in.
  virtual void configure(const Configuration& /*configuration*/, const ConfiguredApp& /*command*/) {}

  // Called when every option has been read: refuses options that contradict each other, and fills in values that follow
  // from several options. Throws CommandError (usage).
  virtual void finish(const CLI::App& /*command*/) {}

  // Carries the command out and returns the exit code. `program` is argv[0]; it begins the commands that rerun a case.
  // Throws CommandError.
  virtual int run(const std::string& program) = 0;
};

// A command with the values of its options.
template <typename Options>
class CommandWith : public Command {
 public:
  Options options;
};

// The text of a command that only prints, such as --help, --version or --man.
struct PrintText {
  std::string text;
};
class PrintCommand : public CommandWith<PrintText> {
 public:
  int run(const std::string& program) override;
};

enum class Configured { no, yes };

struct Subcommand {
  const char* name;
  const char* summary;  // beside its name in cp-pool --help
  std::string footer;   // below its options: examples, each of which can be called
  // Adds the options to `command`, the parser's subcommand of this name.
  std::unique_ptr<Command> (*add)(CLI::App& command);
  // Whether options that the command line leaves out are taken from the environment and cp-pool.toml
  // (docs/configuration.md). A key sets the options of its name in all such subcommands.
  Configured configured = Configured::no;
};

// The constructor of T takes the parser's subcommand and adds its options to it.
template <typename T>
Subcommand subcommand(const char* name, const char* summary, const std::string& footer,
                      Configured configured = Configured::no) {
  return {.name = name,
          .summary = summary,
          .footer = footer,
          .add = [](CLI::App& command) -> std::unique_ptr<Command> { return std::make_unique<T>(command); },
          .configured = configured};
}

// Returns the subcommand that is asked for, with its options read and checked. `words` are those after `cp-pool`, here
// and below. Throws CommandError (usage).
std::unique_ptr<Command> parse_command_line(const std::vector<std::string>& words);

// Returns the completions of the last word.
Candidates command_candidates(const std::vector<std::string>& words);

}  // namespace cp_pool
