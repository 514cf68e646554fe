#include "driver/cli/commands/command_line.h"
#include "driver/cli/option_kinds.h"

namespace cp_pool {

namespace {

constexpr const char* kHelpFooter =
    "Examples:\n"
    "  cp-pool help run                               as cp-pool run --help\n";

class HelpCommand : public PrintCommand {
 public:
  explicit HelpCommand(CLI::App& command) {
    add_positional(command, "COMMAND", topic_, Needed::no, "A command; all of them if left out");
  }
  void finish(const CLI::App& /*command*/) override { options.text = command_help(topic_); }

 private:
  std::string topic_;
};

}  // namespace

Subcommand help_subcommand() {
  return {.name = "help",
          .summary = "Print the help of a command",
          .footer = kHelpFooter,
          .add = add_options_of<HelpCommand>};
}

}  // namespace cp_pool
