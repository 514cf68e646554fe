// Stacks that a rank writes to stderr without names, because it is in a signal handler (docs/protocol.md, "Stacks"):
//   "  #1 libtorch_cpu.so+0x5ac3f0"                         a frame: module, and the call's address in it
//   "  #0 0x7f12"                                           a frame outside all modules
//   "[CP_POOL_MODULE] libtorch_cpu.so 9f3c.. /lib/libtorch_cpu.so"  name, build ID in hexadecimal or "-", file
#pragma once

#include <string_view>

namespace cp_pool::protocol {

inline constexpr std::string_view kFramePrefix = "  #";
inline constexpr std::string_view kModulePrefix = "[CP_POOL_MODULE] ";

}  // namespace cp_pool::protocol
