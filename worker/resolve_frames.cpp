#include <backward.hpp>

#include <fmt/format.h>

#include "worker/throw_trace.h"

namespace cp_pool {

namespace {

// Whether the function is our __cxa_throw, or AddressSanitizer's interceptor of it.
bool records_the_throw(const std::string& function) {
  return function == "__cxa_throw" || function == "backtrace" ||
         function.find("interceptor_backtrace") != std::string::npos;
}

}  // namespace

std::string resolve_frames(const std::vector<void*>& addresses) {
  backward::TraceResolver resolver;
  resolver.load_addresses(addresses.data(), static_cast<int>(addresses.size()));
  std::string out;
  std::size_t shown = 0;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    // A return address may already belong to the next line, or function: look up the call before it.
    void* const call = static_cast<char*>(addresses[i]) - 1;
    const backward::ResolvedTrace frame = resolver.resolve(backward::Trace(call, i));
    // The symbol's name has the class in it, that of the debug information has not.
    const std::string& function = frame.object_function.empty() ? frame.source.function : frame.object_function;
    if (shown == 0 && records_the_throw(function)) continue;
    out += fmt::format("  #{} {}", shown++, function.empty() ? "??" : function);
    if (!frame.source.filename.empty()) {
      out += fmt::format(" at {}:{}", frame.source.filename, frame.source.line);
    } else if (!frame.object_filename.empty()) {
      out += fmt::format(" in {}", frame.object_filename);
    }
    out += '\n';
  }
  return out;
}

}  // namespace cp_pool
