#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/cli/commands/command_line.h"
#include "driver/cli/completion/shell_scripts.h"
#include "driver/cli/option_kinds.h"

namespace cp_pool {

namespace {

constexpr const char* kCompletionFooter =
    "Examples:\n"
    "  cp-pool completion bash      for ~/.local/share/bash-completion/completions/cp-pool\n"
    "  cp-pool completion zsh       for _cp-pool in a folder that is in fpath before compinit\n"
    "  cp-pool completion fish      for ~/.config/fish/completions/cp-pool.fish\n";

class CompletionCommand : public PrintCommand {
 public:
  explicit CompletionCommand(CLI::App& command) {
    add_positional(command, "SHELL", shell_, Needed::yes, "bash, zsh or fish");
  }
  void finish(const CLI::App& command) override {
    if (std::ranges::count(completion_shells(), shell_) == 0) {
      refuse(command, fmt::format("'{}' is none of {}", shell_, fmt::join(completion_shells(), ", ")));
    }
    options.text = completion_script(shell_);
  }

 private:
  std::string shell_;
};

}  // namespace

Subcommand completion_subcommand() {
  return {.name = "completion",
          .summary = "Print a script that completes command lines in a shell",
          .footer = kCompletionFooter,
          .add = add_options_of<CompletionCommand>};
}

}  // namespace cp_pool
