// Finds names for the stacks that a rank writes to stderr without names, because it is in a signal handler
// (docs/protocol.md, "Stacks"):
//   "  #1 libtorch_cpu.so+0x5ac3f0"                         a frame: module, and the call's address in it
//   "  #0 0x7f12"                                           a frame outside all modules
//   "[CP_POOL_MODULE] libtorch_cpu.so 9f3c.. /lib/libtorch_cpu.so"  name, build ID in hexadecimal or "-", file
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace cp_pool {

namespace protocol {
inline constexpr std::string_view kFramePrefix = "  #";
inline constexpr std::string_view kModulePrefix = "[CP_POOL_MODULE] ";
}  // namespace protocol

struct FrameAddress {
  std::string module;        // path of the module's file
  std::string build_id;      // in hexadecimal; "-" if unknown
  std::uint64_t offset = 0;  // in bytes, from the start of the module
  auto operator<=>(const FrameAddress&) const = default;
};

// The calls at each address, the outermost first (if there are several, the others are inlined). Each is "function at
// file:line", or "function in module" without debug information, demangled and on one line.
using FrameNames = std::map<FrameAddress, std::vector<std::string>>;

// Returns the raw frames in a text whose module the text names, each once.
std::vector<FrameAddress> raw_frames(std::string_view text);

// Calls `tell` with the calls of each frame, module by module and small files first. Frames that are not found are left
// out; a file with another build ID than the frame's does not count as its module. Reads symbols and debug information
// of the files, which may take seconds.
void look_up_frames(const std::vector<FrameAddress>& frames,
                    const std::function<void(const FrameAddress& frame, const std::vector<std::string>& calls)>& tell);

// Returns the text with names for its frames. Frames without a name are unchanged. The line of a module is kept only if
// no frame of that module has a name.
std::string with_names(std::string_view text, const FrameNames& names);

}  // namespace cp_pool
