// Finds names for the stacks that ranks write without names (worker/protocol/raw_stack.h).
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace cp_pool {

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
