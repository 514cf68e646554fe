// Names for the stacks that ranks write without any (worker/protocol/raw_stack.h).
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
  std::string module;    // its file
  std::string build_id;  // in hexadecimal; "-": not known
  std::uint64_t offset = 0;
  auto operator<=>(const FrameAddress&) const = default;
};

// The calls that are there, the outermost first (more than one: the others are inlined), each as "function at
// file:line", or "function in module" without debug information. Demangled, on one line.
using FrameNames = std::map<FrameAddress, std::vector<std::string>>;

// Returns the raw frames in this text whose module is named in it, each once.
std::vector<FrameAddress> raw_frames(std::string_view text);

// Tells what each of these is, module by module and small files first. Says nothing of those that are not found; a
// module's file with another build ID is another module. Reads the files' symbols and debug information, which may
// take seconds.
void look_up_frames(const std::vector<FrameAddress>& frames,
                    const std::function<void(const FrameAddress& frame, const std::vector<std::string>& calls)>& tell);

// The text with names for its frames. Frames without one stay as they are; so do the lines of modules none of whose
// frames has one, the others are left out.
std::string with_names(std::string_view text, const FrameNames& names);

}  // namespace cp_pool
