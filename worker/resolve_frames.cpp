#include <algorithm>
#include <dlfcn.h>
#include <filesystem>
#include <link.h>
#include <set>
#include <system_error>

#include <fmt/format.h>

#include "worker/protocol/frame_names.h"
#include "worker/throw_trace.h"

namespace cp_pool {

namespace {

// Returns the place of the call before a return address. The return address may already belong to the next line or
// function.
FrameAddress call_before(const void* address) {
  const char* const call = static_cast<const char*>(address) - 1;
  Dl_info unused{};
  link_map* module = nullptr;
  if (dladdr1(call, &unused, reinterpret_cast<void**>(&module), RTLD_DL_LINKMAP) == 0 || module == nullptr) return {};
  FrameAddress out{
      .module = module->l_name, .build_id = "-", .offset = reinterpret_cast<std::uintptr_t>(call) - module->l_addr};
  std::error_code ignored;
  if (out.module.empty()) out.module = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return out;
}

// Whether the call is in the worker's own __cxa_throw, or in AddressSanitizer's interceptor of it.
bool is_throw_recorder(const std::string& call) {
  return call.starts_with("__cxa_throw ") || call.starts_with("backtrace ") ||
         call.find("interceptor_backtrace") != std::string::npos;
}

}  // namespace

std::string resolve_frames(const std::vector<void*>& addresses) {
  std::vector<FrameAddress> frames;
  frames.reserve(addresses.size());
  for (const void* address : addresses) frames.push_back(call_before(address));
  FrameNames names;
  const std::set<FrameAddress> distinct(frames.begin(), frames.end());
  look_up_frames({distinct.begin(), distinct.end()},
                 [&](const FrameAddress& frame, const std::vector<std::string>& calls) { names[frame] = calls; });
  std::string out;
  std::size_t shown = 0;
  for (const FrameAddress& frame : frames) {
    const std::vector<std::string>& calls = names[frame];
    if (shown == 0 && std::ranges::any_of(calls, is_throw_recorder)) continue;
    // Inlined calls are left out: their names lack the namespace by which a report recognises frames to hide.
    std::string call = frame.module.empty() ? "??" : fmt::format("?? in {}", frame.module);
    if (!calls.empty()) call = calls.front();
    out += fmt::format("  #{} {}\n", shown++, call);
  }
  return out;
}

}  // namespace cp_pool
