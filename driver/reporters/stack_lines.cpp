#include "driver/reporters/stack_lines.h"

#include <optional>

#include <fmt/format.h>

#include "cases/demangle.h"

namespace cp_pool {

namespace {

// The parameters begin at the first parenthesis outside of template arguments that holds no "(anonymous namespace)".
std::string without_parameters(const std::string& name) {
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    if (name[i] == '>') --depth;
    const bool opens = name[i] == '(' && depth <= 0 && !std::string_view{name}.substr(i).starts_with("(anonymous");
    if (opens && i > 0) return name.substr(0, i);
  }
  return name;
}

// Nothing for a line that is no frame.
std::optional<std::string> readable_frame(std::string_view line) {
  const std::size_t address = line.rfind(")[0x");
  if (address == std::string_view::npos || !line.ends_with(']')) return std::nullopt;
  const std::size_t open = line.rfind('(', address);
  if (open == std::string_view::npos) return std::nullopt;
  const std::string_view place = line.substr(open + 1, address - open - 1);
  const std::size_t offset = place.rfind("+0x");
  if (offset == std::string_view::npos) return std::nullopt;
  std::string_view program = line.substr(0, open);
  program.remove_prefix(program.find_last_of("/ ") + 1);
  const std::string_view symbol = place.substr(0, offset);
  if (symbol.empty()) return fmt::format("{} {}", program, place);
  return fmt::format("{} ({})", without_parameters(demangled(std::string{symbol}.c_str())), program);
}

}  // namespace

std::string readable_stack(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    const auto frame = readable_frame(line);
    out += frame ? *frame : line;
    if (end == std::string_view::npos) break;
    out += '\n';
    text.remove_prefix(end + 1);
  }
  return out;
}

}  // namespace cp_pool
