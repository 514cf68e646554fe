#include "worker/throw_trace.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <typeinfo>

namespace {

constexpr int kMaxFrames = 64;
// Throw sites kept per thread. Several are needed, because destructors and handlers may throw and catch during
// unwinding.
constexpr std::size_t kRemembered = 4;

struct ThrowSite {
  const std::type_info* type = nullptr;
  std::array<void*, kMaxFrames> frames{};
  int depth = 0;
};

struct ThrowSites {
  std::array<ThrowSite, kRemembered> ring;
  std::size_t next = 0;
};
thread_local ThrowSites throw_sites;

}  // namespace

// Replaces and calls the C++ runtime's __cxa_throw, for the whole process including its libraries.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming,readability-inconsistent-declaration-parameter-name)
extern "C" __attribute__((noreturn)) void __cxa_throw(void* object, std::type_info* type, void (*destructor)(void*)) {
  ThrowSite& site = throw_sites.ring[throw_sites.next++ % kRemembered];
  site.type = type;
  site.depth = backtrace(site.frames.data(), kMaxFrames);
  using Throw = void (*)(void*, std::type_info*, void (*)(void*));
  static const auto runtime = reinterpret_cast<Throw>(dlsym(RTLD_NEXT, "__cxa_throw"));
  runtime(object, type, destructor);
  std::abort();  // not reached
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming,readability-inconsistent-declaration-parameter-name)

namespace cp_pool {

std::vector<void*> throw_site_of_current_exception() {
  const std::type_info* const type = abi::__cxa_current_exception_type();
  if (type == nullptr) return {};
  for (std::size_t back = 1; back <= std::min(throw_sites.next, kRemembered); ++back) {
    const ThrowSite& site = throw_sites.ring[(throw_sites.next - back) % kRemembered];
    if (*site.type == *type) return {site.frames.begin(), site.frames.begin() + site.depth};
  }
  return {};
}

}  // namespace cp_pool
