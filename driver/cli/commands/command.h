// What a subcommand of cp-pool is. Each has one file, x_command.cpp, which says all about it; CONTRIBUTING.md says how
// to add one.
#pragma once

#include <memory>
#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): of CLI11
class App;
}

namespace cp_pool {

class Configuration;
class ConfiguredApp;

// A command line that was read, and what carries it out.
class Command {
 public:
  Command() = default;
  Command(const Command&) = delete;  // what reads the command line refers to it
  Command& operator=(const Command&) = delete;
  virtual ~Command() = default;

  // Called before finish, of a subcommand that is configured, when the options of `command` have been read and set.
  virtual void configure(const Configuration& /*configuration*/, const ConfiguredApp& /*command*/) {}

  // Called when every option has been read: refuses options that contradict each other, and fills in values that follow
  // from several options. Throws CommandError (usage).
  virtual void finish(const CLI::App& /*command*/) {}

  // Returns the exit code; throws CommandError. program: as it was called (argv[0]), for commands that rerun a case.
  virtual int run(const std::string& program) = 0;
};

// A command with the values of its options.
template <typename Options>
class CommandWith : public Command {
 public:
  Options options;
};

struct Subcommand {
  const char* name;
  const char* summary;  // beside its name in cp-pool --help
  std::string footer;   // below its options: examples, each of which can be called
  // Adds the options to `command`, the parser's subcommand of this name.
  std::unique_ptr<Command> (*add)(CLI::App& command);
  // Options that the command line leaves out are those of the environment and cp-pool.toml (docs/configuration.md): a
  // key sets every option of its name.
  bool configured = false;
};

// For Subcommand::add: T has a constructor of the command that it adds its options to.
template <typename T>
std::unique_ptr<Command> add_options_of(CLI::App& command) {
  return std::make_unique<T>(command);
}

}  // namespace cp_pool
