#include "worker/protocol/frame_names.h"

#include <algorithm>
#include <cstdlib>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <sys/stat.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/demangle.h"
#include "cases/parse_number.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

constexpr std::size_t kMostOfName = 1000;  // bytes; names of template instances can be arbitrarily long

std::string_view take_word(std::string_view& text) {
  const std::size_t end = text.find(' ');
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return word;
}

struct RawFrame {
  std::string_view number;
  std::string_view module;  // the module's name
  std::uint64_t offset = 0;
};

// Parses a line such as "  #3 libc.so.6+0x1f".
std::optional<RawFrame> parse_frame(std::string_view line) {
  if (!line.starts_with(protocol::kFramePrefix)) return std::nullopt;
  line.remove_prefix(protocol::kFramePrefix.size());
  const std::string_view number = take_word(line);
  const std::size_t plus = line.rfind("+0x");
  if (plus == std::string_view::npos || plus == 0) return std::nullopt;
  const auto offset = parse_number<std::uint64_t>(line.substr(plus + 3), 16);
  if (!offset) return std::nullopt;
  return RawFrame{number, line.substr(0, plus), *offset};
}

struct ModuleLine {
  std::string_view name;
  std::string_view build_id;
  std::string_view file;
};

std::optional<ModuleLine> parse_module(std::string_view line) {
  if (!line.starts_with(protocol::kModulePrefix)) return std::nullopt;
  line.remove_prefix(protocol::kModulePrefix.size());
  ModuleLine out;
  out.name = take_word(line);
  out.build_id = take_word(line);
  out.file = line;
  if (out.file.empty()) return std::nullopt;
  return out;
}

struct StackLine {
  std::string_view text;
  std::optional<RawFrame> frame;
  std::optional<ModuleLine> module;  // of a frame its module, if the text names it
};

// A text may hold several stacks: a frame's module is in the first line after the frame that names it.
std::vector<StackLine> read_stacks(std::string_view text) {
  std::vector<StackLine> lines;
  for (const std::string_view line : protocol::lines_of(text)) {
    lines.push_back({line, parse_frame(line), parse_module(line)});
  }
  for (auto line = lines.begin(); line != lines.end(); ++line) {
    if (!line->frame) continue;
    const auto found = std::find_if(line, lines.end(), [&](const StackLine& later) {
      return !later.frame && later.module && later.module->name == line->frame->module;
    });
    if (found != lines.end()) line->module = found->module;
  }
  return lines;
}

FrameAddress address_of(const RawFrame& frame, const ModuleLine& module) {
  return {std::string{module.file}, std::string{module.build_id}, frame.offset};
}

// --- One module's file -----------------------------------------------------------------------------------------------
struct EndDwfl {
  void operator()(Dwfl* dwfl) const { dwfl_end(dwfl); }
};

class ModuleFile {
 public:
  explicit ModuleFile(const FrameAddress& frame) : path_(frame.module) {
    struct stat status{};
    if (::stat(path_.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return;
    // Only symbols in the file itself are used, because separate debug information may have to be downloaded.
    static const Dwfl_Callbacks callbacks{
        .find_elf = nullptr,
        .find_debuginfo = [](Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*, GElf_Word,
                             char**) { return -1; },
        .section_address = dwfl_offline_section_address,
        .debuginfo_path = nullptr};
    dwfl_.reset(dwfl_begin(&callbacks));
    if (!dwfl_) return;
    Dwfl_Module* const module = dwfl_report_offline(dwfl_.get(), "", path_.c_str(), -1);
    if (module == nullptr) return;
    dwfl_report_end(dwfl_.get(), nullptr, nullptr);
    if (dwfl_module_getelf(module, &bias_) == nullptr) return;
    const unsigned char* bits = nullptr;
    GElf_Addr unused = 0;
    const int size = dwfl_module_build_id(module, &bits, &unused);
    const std::span<const unsigned char> build_id(bits, static_cast<std::size_t>(std::max(size, 0)));
    if (frame.build_id != "-" && fmt::format("{:02x}", fmt::join(build_id, "")) != frame.build_id) return;
    module_ = module;
  }

  [[nodiscard]] std::vector<std::string> calls_at(std::uint64_t offset) const {
    if (module_ == nullptr) return {};
    const Dwarf_Addr address = bias_ + offset;
    const char* const symbol = dwfl_module_addrname(module_, address);
    std::vector<std::string> calls = calls_in_debug_information(address, symbol);
    if (calls.empty() && symbol != nullptr) calls.push_back(fmt::format("{} in {}", name_of(symbol), path_));
    return calls;
  }

 private:
  static std::string name_of(const char* symbol) { return protocol::cut_text(demangled(symbol), kMostOfName); }

  static const char* name_of(Dwarf_Die& function) {
    Dwarf_Attribute attribute;
    const char* name = nullptr;
    for (const unsigned which : {static_cast<unsigned>(DW_AT_linkage_name), static_cast<unsigned>(DW_AT_name)}) {
      if (name == nullptr) name = dwarf_formstring(dwarf_attr_integrate(&function, which, &attribute));
    }
    return name == nullptr ? "??" : name;
  }

  static std::string place(const char* file, int line) {
    return fmt::format("at {}:{}", file == nullptr ? "??" : file, line);
  }

  // Inlined functions have no symbol; only the debug information says which calls an address belongs to.
  std::vector<std::string> calls_in_debug_information(Dwarf_Addr address, const char* symbol) const {
    Dwarf_Addr bias = 0;
    Dwarf_Die* const unit = dwfl_module_addrdie(module_, address, &bias);
    Dwfl_Line* const line = dwfl_module_getsrc(module_, address);
    if (unit == nullptr || line == nullptr) return {};
    int number = 0;
    const char* const file = dwfl_lineinfo(line, nullptr, &number, nullptr, nullptr, nullptr);
    std::string where = place(file, number);
    Dwarf_Die* innermost = nullptr;
    const bool known = dwarf_getscopes(unit, address - bias, &innermost) > 0;
    const std::unique_ptr<Dwarf_Die, decltype(&std::free)> owner_of_innermost(innermost, &std::free);
    // For an inlined call, dwarf_getscopes gives the scopes around its definition. The callers are the scopes around
    // the call's own entry.
    Dwarf_Die* found = nullptr;
    const int depth = known ? dwarf_getscopes_die(innermost, &found) : 0;
    const std::unique_ptr<Dwarf_Die, decltype(&std::free)> owner(found, &std::free);
    std::vector<std::string> calls;  // the innermost first
    for (int i = 0; i < depth; ++i) {
      Dwarf_Die& scope = found[i];
      const int tag = dwarf_tag(&scope);
      if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram) continue;
      const bool whole = tag == DW_TAG_subprogram;
      calls.push_back(fmt::format("{} {}", name_of(whole && symbol != nullptr ? symbol : name_of(scope)), where));
      if (whole) break;
      where = place_of_call(*unit, scope);
    }
    if (calls.empty() && symbol != nullptr) calls.push_back(fmt::format("{} {}", name_of(symbol), where));
    std::ranges::reverse(calls);
    return calls;
  }

  static std::string place_of_call(Dwarf_Die& unit, Dwarf_Die& inlined) {
    Dwarf_Attribute attribute;
    Dwarf_Word file = 0;
    Dwarf_Word line = 0;
    dwarf_formudata(dwarf_attr(&inlined, DW_AT_call_file, &attribute), &file);
    dwarf_formudata(dwarf_attr(&inlined, DW_AT_call_line, &attribute), &line);
    Dwarf_Files* files = nullptr;
    std::size_t count = 0;
    const bool known = dwarf_getsrcfiles(&unit, &files, &count) == 0 && file < count;
    return place(known ? dwarf_filesrc(files, file, nullptr, nullptr) : nullptr, static_cast<int>(line));
  }

  std::string path_;
  std::unique_ptr<Dwfl, EndDwfl> dwfl_;
  Dwarf_Addr bias_ = 0;
  Dwfl_Module* module_ = nullptr;
};

std::int64_t size_of_file(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 ? status.st_size : 0;
}

}  // namespace

std::vector<FrameAddress> raw_frames(std::string_view text) {
  std::set<FrameAddress> out;
  for (const StackLine& line : read_stacks(text)) {
    if (line.frame && line.module) out.insert(address_of(*line.frame, *line.module));
  }
  return {out.begin(), out.end()};
}

void look_up_frames(const std::vector<FrameAddress>& frames,
                    const std::function<void(const FrameAddress&, const std::vector<std::string>&)>& tell) {
  // The key is the size of the module's file, and the module.
  std::map<std::pair<std::int64_t, std::string>, std::vector<FrameAddress>> by_module;
  for (const FrameAddress& frame : frames) {
    by_module[{size_of_file(frame.module), frame.module + '\n' + frame.build_id}].push_back(frame);
  }
  for (const auto& [module, of_module] : by_module) {
    const ModuleFile file(of_module.front());
    for (const FrameAddress& frame : of_module) {
      if (const auto calls = file.calls_at(frame.offset); !calls.empty()) tell(frame, calls);
    }
  }
}

std::string with_names(std::string_view text, const FrameNames& names) {
  std::string out;
  std::set<std::string_view> read;  // files of modules with a named frame
  for (const StackLine& line : read_stacks(text)) {
    const auto found = line.frame && line.module ? names.find(address_of(*line.frame, *line.module)) : names.end();
    if (found != names.end()) {
      read.insert(line.module->file);
      for (const std::string& call : found->second) {
        out += fmt::format("{}{} {}\n", protocol::kFramePrefix, line.frame->number, protocol::clean_text(call));
      }
    } else if (line.frame || !line.module || !read.contains(line.module->file)) {
      out += fmt::format("{}\n", line.text);
    }
  }
  return out;
}

}  // namespace cp_pool
