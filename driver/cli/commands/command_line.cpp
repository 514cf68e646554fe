#include <algorithm>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cases/did_you_mean.h"
#include "driver/cli/commands/command.h"
#include "driver/cli/config/configuration.h"
#include "driver/cli/configured_app.h"
#include "driver/cli/error_reporting.h"
#include "driver/cli/man_page.h"
#include "driver/cli/program_paths.h"
#include "driver/cli/shell_words.h"
#include "driver/core/exit_code.h"
#include "driver/core/mapped.h"

// The subcommands, in the order of `cp-pool --help`.
#define CP_POOL_SUBCOMMANDS(SUBCOMMAND) \
  SUBCOMMAND(run)                       \
  SUBCOMMAND(submit)                    \
  SUBCOMMAND(search)                    \
  SUBCOMMAND(list)                      \
  SUBCOMMAND(report)                    \
  SUBCOMMAND(replay)                    \
  SUBCOMMAND(runs)                      \
  SUBCOMMAND(show)                      \
  SUBCOMMAND(diff)                      \
  SUBCOMMAND(explain)                   \
  SUBCOMMAND(config)                    \
  SUBCOMMAND(serve)                     \
  SUBCOMMAND(status)                    \
  SUBCOMMAND(stop)                      \
  SUBCOMMAND(shell)                     \
  SUBCOMMAND(doctor)                    \
  SUBCOMMAND(help)                      \
  SUBCOMMAND(completion)                \
  SUBCOMMAND(conformance)

namespace cp_pool {

#define DECLARE(name) Subcommand name##_subcommand();  // defined in <name>_command.cpp
CP_POOL_SUBCOMMANDS(DECLARE)
#undef DECLARE

namespace {

constexpr std::size_t kColumnWidth = 36;

constexpr const char* kFooter =
    "Examples:\n"
    "  cp-pool run                                    the matrix 'quick' on CPU ranks\n"
    "  cp-pool run --matrix te-flash --filter 'comm=p2p & layout=thd' --junit report.xml\n"
    "  cp-pool list --matrix te-flash te-fused --count\n"
    "  cp-pool submit te-flash/cp_2_0/p2p/cp2/thd/bf16/pad\n"
    "  cp-pool explain te-flash/cp_2_2/p2p/cp2/thd/bf16/pad\n"
    "  cp-pool run --help                             every option of a command\n";

struct CallForManPage {};

// kind: what the word would be, if it was one of `known`. Throws CommandError (usage).
[[noreturn]] void refuse_word(const CLI::App& taker, const char* kind, const std::string& word,
                              const std::vector<std::string>& known) {
  refuse(taker, fmt::format("there is no {} '{}'{}", kind, word, did_you_mean(word, known)));
}

std::vector<std::string> option_names(const CLI::App& taker) {
  std::vector<std::string> names;
  for (const CLI::Option* option : taker.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// Says how a command that selects cases is given a matrix or an ID, which it does not take as an argument.
std::string other_use(const CLI::App& command, const std::string& word) {
  if (command.get_option_no_throw("--filter") == nullptr) return "";
  const std::string quoted = shell_line({word});
  const bool is_matrix = word.ends_with(".json") || std::ranges::count(shipped_matrices(), word) > 0;
  return is_matrix ? fmt::format("; --matrix {} selects its cases", quoted)
                   : fmt::format("; --filter {0} selects cases, and cp-pool submit {0} runs one", quoted);
}

struct Parser {
  CLI::App app{"Runs context-parallel attention cases on warm pools of ranks and says which answers are wrong.",
               "cp-pool"};

  struct Added {
    ConfiguredApp* app = nullptr;
    std::unique_ptr<Command> command;
    std::unique_ptr<ConfigChoice> config = {};  // nullptr if the command is not configured
  };
  std::vector<Added> commands;

  Parser() {
    app.set_version_flag("--version", "cp-pool " CP_POOL_VERSION, "Print the version");
    app.set_help_flag("-h,--help", "Print this help");
    app.add_flag_callback("--man", [] { throw CallForManPage(); }, "Print the man page: cp-pool --man | man -l -");
    app.require_subcommand(1);
    // The subcommands inherit the next two settings.
    app.get_formatter()->column_width(kColumnWidth);
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app.footer(kFooter);
#define ADD(name) add(name##_subcommand());
    CP_POOL_SUBCOMMANDS(ADD)
#undef ADD
  }

  void add(const Subcommand& subcommand) {
    const auto command = std::make_shared<ConfiguredApp>(subcommand.summary, subcommand.name, &app);
    app.add_subcommand(command);
    command->footer(subcommand.footer);
    Added added{.app = command.get(), .command = subcommand.add(*command)};
    if (subcommand.configured == Configured::yes) {
      added.config = std::make_unique<ConfigChoice>();
      add_config_options(*command, *added.config);
    }
    commands.push_back(std::move(added));
  }

  // Throws CommandError (usage).
  [[noreturn]] void refuse_command(const std::string& name) const {
    refuse_word(app, "command", name, mapped(commands, [](const Added& each) { return each.app->get_name(); }));
  }

  // Throws CommandError (usage) if the command line has a word that belongs to no option, command or argument.
  void expect_known_words() const {
    for (const CLI::App* const taker : std::vector<const CLI::App*>{&app, command_given()}) {
      if (taker == nullptr || taker->remaining_size() == 0) continue;
      std::vector<std::string> words = taker->remaining();
      std::erase(words, "--");
      const std::string& word = words.front();
      if (word.starts_with('-')) refuse_word(*taker, "option", word.substr(0, word.find('=')), option_names(*taker));
      if (taker == &app) refuse_command(word);
      refuse(*taker,
             fmt::format("{} does not take the argument '{}'{}", taker->get_name(), word, other_use(*taker, word)));
    }
  }

  // Returns nullptr if no command was given.
  [[nodiscard]] const CLI::App* command_given() const {
    const std::vector<CLI::App*> given = app.get_subcommands();
    return given.empty() ? nullptr : given.front();
  }

  // Throws CommandError (usage).
  std::unique_ptr<Command> parsed() {
    for (Added& added : commands) {
      if (!added.app->parsed()) continue;
      if (added.config) configure(added);
      try {
        added.command->finish(*added.app);
      } catch (const CommandError& e) {
        throw CommandError(e.code(), with_places(e.what(), *added.app));
      }
      return std::move(added.command);
    }
    throw std::logic_error("a command line without a subcommand was let pass");
  }

  // Throws CommandError (usage).
  void configure(Added& added) const {
    const std::string& name = added.app->get_name();
    const Configuration configuration(*added.config, *commands.front().app, name == "run" || name == "config");
    configuration.apply(*added.app);
    added.command->configure(configuration, *added.app);
  }
};

std::unique_ptr<Command> print(std::string text) {
  auto command = std::make_unique<PrintCommand>();
  command->options.text = std::move(text);
  return command;
}

std::string with_exit_codes(const std::string& help) {
  return help + '\n' + exit_code_help();
}

// Returns what --help of the subcommand `name` prints, or of cp-pool itself if `name` is empty. Throws CommandError
// (usage).
std::string command_help(const std::string& name) {
  const Parser parser;
  if (name.empty()) return with_exit_codes(parser.app.help());
  for (const Parser::Added& each : parser.commands) {
    if (each.app->get_name() == name) return with_exit_codes(each.app->help(parser.app.get_name()));
  }
  parser.refuse_command(name);
}

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

int PrintCommand::run(const std::string& /*program*/) {
  print_on_stdout(options.text);
  return to_int(ExitCode::ok);
}

Candidates command_candidates(const std::vector<std::string>& words) {
  const Parser parser;
  return candidates(parser.app, words);
}

Subcommand help_subcommand() {
  return subcommand<HelpCommand>("help", "Print the help of a command", kHelpFooter);
}

std::unique_ptr<Command> parse_command_line(const std::vector<std::string>& words) {
  Parser parser;
  // The completion scripts call `cp-pool completion words WORD ..`. The words are still being typed, so they are not
  // parsed as a command line.
  if (words.size() >= 2 && words[0] == "completion" && words[1] == "words") {
    return print(candidate_lines(candidates(parser.app, {words.begin() + 2, words.end()})));
  }
  try {
    parser.app.parse(std::vector(words.rbegin(), words.rend()));
  } catch (const CLI::CallForHelp&) {
    return print(with_exit_codes(parser.app.help()));
  } catch (const CallForManPage&) {
    return print(man_page(parser.app));
  } catch (const CLI::CallForVersion& e) {
    return print(std::string{e.what()} + '\n');
  } catch (const CLI::ExcludesError& e) {
    constexpr std::string_view kExcludes = " excludes ";  // "--one excludes --other"
    std::string both = e.what();
    both.replace(both.find(kExcludes), kExcludes.size(), " and ");
    refuse(*parser.command_given(), both + " contradict each other");
  } catch (const CLI::ParseError& e) {
    parser.expect_known_words();
    const CLI::App* const command = parser.command_given();
    refuse(command == nullptr ? parser.app : *command, e.what());
  }
  return parser.parsed();
}

}  // namespace cp_pool
