#include "driver/cli/launcher_choice.h"

#include <fmt/format.h>

#include "cases/enum_names.h"
#include "driver/cli/shell_words.h"

namespace cp_pool {

std::string wrong_with_launcher(const std::string& text) {
  if (parse_name<LauncherKind>(text)) return "";
  const auto words = split_words(text);
  if (!words || words->empty()) return fmt::format("'{}' is not a command line", text);
  if (words->size() == 1) {
    return fmt::format("'{}' is not {}, and no command line with {{worker}} in it", text, list_names<LauncherKind>());
  }
  return template_error(*words);
}

Launcher parse_launcher(const std::string& text) {
  if (const auto kind = parse_name<LauncherKind>(text)) return {*kind, {}};
  return {LauncherKind::custom, split_words(text).value()};
}

}  // namespace cp_pool
