#include "driver/core/stack_lines.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "cases/demangle.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

struct Frame {
  std::string indent;
  std::string number;    // "#3 ", or empty if the trace has no numbers
  std::string function;  // its short name; empty if unknown
  std::string place;
};

// Frames of these functions, and all frames below them, are not shown.
constexpr std::array<std::string_view, 14> kBelow{"main",
                                                  "_start",
                                                  "start_thread",
                                                  "clone",
                                                  "clone3",
                                                  "execute_native_thread_routine",
                                                  "__libc_start_main",
                                                  "__clone",
                                                  "__libc_start_call_main",
                                                  "cp_pool::serve_as_rank",
                                                  "cp_pool::run_case",
                                                  "cp_pool::CpCoreRunner::",
                                                  "cp_pool::RankCompute::",
                                                  "cp_pool::CaseRun::"};
// Frames of these functions are left out wherever they are.
constexpr std::array<std::string_view, 4> kBeside{"cp_pool::FaultInjector::", "cp_pool::ObservedCommunicator::",
                                                  "cp_pool::CountingCommunicator::", "cp_pool::Mail::"};

// A name that ends in "::" stands for all of its members.
template <std::size_t N>
bool is_one_of(const std::array<std::string_view, N>& names, std::string_view function) {
  return std::ranges::any_of(names, [&](std::string_view name) {
    return name.ends_with("::") ? function.starts_with(name) : function.substr(0, function.find('@')) == name;
  });
}

std::string_view after_last(std::string_view path, std::string_view separators) {
  return path.substr(path.find_last_of(separators) + 1);
}

// Returns the last two parts of a path: "comm/gloo_mesh.cpp:12".
std::string_view with_its_folder(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos || slash == 0) return path;
  return path.substr(path.rfind('/', slash - 1) + 1);
}

// Reads a frame such as "/path/program(_Z3fooi+0x12)[0x55..]".
std::optional<Frame> glibc_frame(std::string_view line) {
  const std::size_t address = line.rfind(")[0x");
  if (address == std::string_view::npos || !line.ends_with(']')) return std::nullopt;
  const std::size_t open = line.rfind('(', address);
  if (open == std::string_view::npos) return std::nullopt;
  const std::string_view place = line.substr(open + 1, address - open - 1);
  const std::size_t offset = place.rfind("+0x");
  if (offset == std::string_view::npos) return std::nullopt;
  const std::string_view program = after_last(line.substr(0, open), "/ ");
  const std::string_view symbol = place.substr(0, offset);
  if (symbol.empty()) return Frame{"", "", "", fmt::format("{} {}", program, place)};
  return Frame{"", "", short_function_name(demangled(std::string{symbol}.c_str())), std::string{program}};
}

// Reads the number at the beginning of a text such as "#3 foo", and removes it.
std::string take_number(std::string_view& text) {
  const std::size_t end = text.find_first_not_of("0123456789", 1);
  if (end == 1 || end == std::string_view::npos) return "";
  const std::string_view number = text.substr(0, end);
  text.remove_prefix(end);
  if (text.starts_with(':')) text.remove_prefix(1);
  if (!text.starts_with(' ')) return "";
  text.remove_prefix(1);
  return fmt::format("{} ", number);
}

// Reads a frame such as "frame #3: foo(int) + 0x9d (0x7f.. in /path/program)", from after the number on.
std::optional<Frame> torch_frame(std::string_view rest) {
  const std::size_t address = rest.rfind(" (0x");
  const std::size_t in = rest.rfind(" in ");
  if (address == std::string_view::npos || in == std::string_view::npos || in < address || !rest.ends_with(')')) {
    return std::nullopt;
  }
  const std::string_view name = rest.substr(0, std::min(rest.rfind(" + 0x", address), address));
  std::string_view program = rest.substr(in + 4);
  program.remove_suffix(1);
  Frame out{"", "", name.starts_with("<unknown") ? "" : short_function_name(name),
            std::string{after_last(program, "/")}};
  if (out.function.empty()) out.place += fmt::format(" +{}", rest.substr(name.size() + 3, address - name.size() - 3));
  return out;
}

// Reads a frame such as "#3 foo(int) at /path/file.cpp:12" or "#3 foo(int) in /path/program", from after the number on.
// A number alone makes no frame.
std::optional<Frame> numbered_frame(std::string_view rest) {
  for (const std::string_view word : {" at ", " in "}) {
    const std::size_t at = rest.rfind(word);
    if (at == std::string_view::npos) continue;
    const std::string_view path = rest.substr(at + word.size());
    if (!path.starts_with('/') && !path.starts_with("..")) continue;
    const std::string_view place = word == " at " ? with_its_folder(path) : after_last(path, "/");
    return Frame{"", "", short_function_name(rest.substr(0, at)), std::string{place}};
  }
  // A frame without a name: "libc.so.6+0x8aeec", "0x10".
  const bool raw = rest.find(' ') == std::string_view::npos && rest.find("0x") != std::string_view::npos;
  if (raw) return Frame{"", "", "", std::string{rest}};
  if (rest != "??") return std::nullopt;
  return Frame{"", "", "??", ""};
}

// Returns nullopt for a line that is no frame.
std::optional<Frame> frame_of(std::string_view line) {
  const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
  std::string_view rest = line.substr(begin);
  const bool of_torch = rest.starts_with("frame #");
  if (of_torch) rest.remove_prefix(std::string_view{"frame "}.size());
  if (!rest.starts_with('#')) return glibc_frame(line);
  const std::string number = take_number(rest);
  if (number.empty()) return std::nullopt;
  std::optional<Frame> frame = of_torch ? torch_frame(rest) : numbered_frame(rest);
  if (!frame) return std::nullopt;
  frame->indent = line.substr(0, begin);
  frame->number = number;
  return frame;
}

bool is_below(const Frame& frame) {
  return is_one_of(kBelow, frame.function);
}

std::vector<Frame> shown_frames(std::vector<Frame> frames) {
  // The answer of cp-pool-worker to SIGUSR2 has its innermost frame last, so that a stderr tail keeps it.
  const bool innermost_last = is_below(frames.front()) && !is_below(frames.back());
  if (innermost_last) std::ranges::reverse(frames);
  const Frame innermost = frames.front();
  frames.erase(std::ranges::find_if(frames, is_below), frames.end());
  std::erase_if(frames, [](const Frame& frame) { return is_one_of(kBeside, frame.function); });
  // Equal neighbours come from an overload that calls another one, or from a recursion.
  const auto repeats = std::ranges::unique(frames, [](const Frame& a, const Frame& b) {
    return !a.function.empty() && a.function == b.function && a.place == b.place;
  });
  frames.erase(repeats.begin(), repeats.end());
  if (frames.empty()) frames.push_back(innermost);
  if (innermost_last) std::ranges::reverse(frames);
  return frames;
}

std::string text_of(const Frame& frame) {
  std::string out = frame.indent + frame.number;
  if (frame.function.empty()) return out + frame.place;
  return out + frame.function + (frame.place.empty() ? "" : fmt::format(" ({})", frame.place));
}

// Returns the position after the bracket that closes the one at `open`.
std::size_t after_balanced(std::string_view name, std::size_t open, char opening, char closing) {
  int depth = 0;
  for (std::size_t i = open; i < name.size(); ++i) {
    if (name[i] == opening) ++depth;
    if (name[i] == closing && (closing != '>' || name[i - 1] != '-') && --depth == 0) return i + 1;
  }
  return name.size();
}

bool continues_a_word(std::string_view text) {
  return !text.empty() && (std::isalnum(static_cast<unsigned char>(text.back())) != 0 || text.back() == '_');
}

}  // namespace

std::string short_function_name(std::string_view name) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  constexpr std::string_view kOperator = "operator";
  constexpr std::string_view kLambda = "{lambda";
  std::string out;
  std::size_t word = 0;  // where the name begins, after the return type
  for (std::size_t i = 0; i < name.size();) {
    const std::string_view rest = name.substr(i);
    if (rest.starts_with(kAnonymous)) {
      i += kAnonymous.size();
    } else if (rest.starts_with(kOperator) && !continues_a_word(out)) {
      // The symbols of an operator are no brackets: operator(), operator<, operator->, operator[].
      const bool call = rest.substr(kOperator.size()).starts_with("()");
      const std::size_t end = rest.find_first_not_of("<>=!+-*/%&|^~[],", kOperator.size());
      const std::string_view whole = rest.substr(0, call ? kOperator.size() + 2 : end);
      out += whole;
      i += whole.size();
    } else if (rest.starts_with(kLambda)) {
      out += "{lambda}";
      i = after_balanced(name, i, '{', '}');
    } else if (name[i] == '<') {
      out += "<..>";
      i = after_balanced(name, i, '<', '>');
    } else if (name[i] == '(') {
      i = after_balanced(name, i, '(', ')');
    } else if (rest.starts_with(" const") || rest.starts_with(" [clone") || rest.starts_with("[abi:")) {
      // The name of a function that contains a lambda goes on after it.
      const std::size_t more = rest.find("::");
      if (more == std::string_view::npos) break;
      i += more;
    } else {
      if (name[i] == ' ' && out.find(kOperator) == std::string::npos) word = out.size() + 1;
      out += name[i++];
    }
  }
  return out.substr(std::min(word, out.size()));
}

std::string readable_stack(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::vector<Frame> trace;
  const auto flush = [&] {
    if (trace.empty()) return;
    for (const Frame& frame : shown_frames(std::move(trace))) out += text_of(frame) + '\n';
    trace.clear();
  };
  for (const std::string_view line : protocol::lines_of(text)) {
    if (auto frame = frame_of(line)) {
      trace.push_back(*std::move(frame));
    } else {
      flush();
      out.append(line).append(1, '\n');
    }
  }
  flush();
  if (!text.ends_with('\n') && !out.empty()) out.pop_back();
  return out;
}

std::string throw_site(std::string_view text) {
  std::vector<Frame> trace;
  for (const std::string_view line : protocol::lines_of(text)) {
    auto frame = frame_of(line);
    if (!frame && !trace.empty()) break;
    if (frame) trace.push_back(*std::move(frame));
  }
  if (trace.empty()) return "";
  Frame site = shown_frames(std::move(trace)).front();
  site.number.clear();
  site.indent.clear();
  return text_of(site);
}

}  // namespace cp_pool
