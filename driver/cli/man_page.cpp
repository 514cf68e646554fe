#include "driver/cli/man_page.h"

#include <sstream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "driver/cli/environment_help.h"
#include "driver/core/exit_code.h"

namespace cp_pool {

namespace {

// Returns a line of text as roff takes it: backslashes and hyphens are literal, and roff reads no line as a request.
std::string escape(const std::string& text) {
  std::string out;
  if (!text.empty() && (text.front() == '.' || text.front() == '\'')) out = "\\&";
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '\'') {
      out += "\\(aq";
    } else {
      out += c;
    }
  }
  return out;
}

std::string option_entry(const CLI::Option& option) {
  std::string head = option.get_name(/*positional=*/false, /*all_options=*/true);
  if (option.get_positional()) head = option.get_name(/*positional=*/true);
  std::string entry = fmt::format(".TP\n\\fB{}\\fR", escape(head));
  if (!option.get_type_name().empty() && option.get_items_expected_max() > 0 && !option.get_positional()) {
    entry += fmt::format(" \\fI{}\\fR", escape(option.get_type_name()));
  }
  entry += '\n' + escape(option.get_description());
  if (!option.get_default_str().empty()) entry += fmt::format(" (default: {})", escape(option.get_default_str()));
  return entry + ".\n";
}

std::string option_list(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) text += option_entry(*option);
  }
  return text;
}

std::string environment() {
  std::string text = ".SH ENVIRONMENT\n";
  for (const EnvironmentVariable& variable : environment_variables()) {
    text +=
        fmt::format(".TP\n\\fB{}\\fR\n{}\n", escape(std::string{variable.name}), escape(std::string{variable.meaning}));
  }
  return text;
}

// Returns text that roff prints as it is, without filling.
std::string literal(const std::string& text) {
  std::string out = ".nf\n";
  std::istringstream in{text};
  for (std::string line; std::getline(in, line);) out += line.empty() ? ".sp\n" : escape(line) + '\n';
  return out + ".fi\n";
}

}  // namespace

std::string man_page(const CLI::App& app) {
  std::string text = fmt::format(".TH CP\\-POOL 1 \"\" \"cp\\-pool {}\"\n", CP_POOL_VERSION);
  text += ".SH NAME\ncp\\-pool \\- test service for context\\-parallel attention\n";
  text += ".SH SYNOPSIS\n";
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* command : commands) {
    text += fmt::format(".B cp\\-pool {}\n.RI [ OPTIONS ]\n", escape(command->get_name()));
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_positional()) text += fmt::format(".I {}\n", escape(option->get_name(true)));
    }
    text += ".br\n";
  }
  text += ".SH DESCRIPTION\n" + escape(app.get_description()) + '\n';
  text += ".SH OPTIONS\n" + option_list(app);
  for (const CLI::App* command : commands) {
    text += fmt::format(".SH CP\\-POOL {}\n{}.\n", escape(command->get_name()), escape(command->get_description()));
    text += option_list(*command) + literal(command->get_footer());
  }
  text += ".SH EXAMPLES\n" + literal(app.get_footer());
  text += environment();
  return text + ".SH EXIT STATUS\n" + literal(exit_code_help());
}

}  // namespace cp_pool
