#include "worker/rank_outcome.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cxxabi.h>
#include <dlfcn.h>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <link.h>
#include <set>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <typeinfo>
#include <unistd.h>
#include <utility>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "cases/demangle.h"
#include "cp_core/attention/backend_unsupported.h"
#include "cp_core/comm/communicator.h"
#include "worker/lifeline.h"
#include "worker/protocol/frame_names.h"
#include "worker/protocol/line_framer.h"
#include "worker/protocol/text_clean.h"
#include "worker/throw_trace.h"

namespace cp_pool {

namespace {

constexpr std::size_t kMaxSummaryBytes = 1000;

std::string current_type_name() {
  const std::type_info* const type = abi::__cxa_current_exception_type();
  return type == nullptr ? "unknown exception" : demangled(type->name());
}

FailureKind to_failure_kind(CommError::Kind kind) {
  if (kind == CommError::Kind::timeout) return FailureKind::timeout;
  return kind == CommError::Kind::aborted ? FailureKind::aborted : FailureKind::communication;
}

std::string summary_of(std::string_view text) {
  return protocol::cut_text(protocol::first_line(text), kMaxSummaryBytes);
}

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

// Returns one line per frame, with function, file and line as far as debug information goes. Takes tens of milliseconds
// or more.
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

std::int64_t count_entries(const char* folder) {
  std::int64_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

// Counts open file descriptors. Since 6.2 Linux reports their number as the size of the folder. On older kernels the
// folder is listed, which opens one more descriptor.
std::int64_t open_descriptors() {
  constexpr const char* kFolder = "/proc/self/fd";
  struct stat told{};
  if (::stat(kFolder, &told) == 0 && told.st_size > 0) return told.st_size;
  return count_entries(kFolder) - 1;
}

// Counts threads: the folder has one link for each thread, and two that every folder has.
std::int64_t threads() {
  constexpr const char* kFolder = "/proc/self/task";
  struct stat told{};
  if (::stat(kFolder, &told) == 0 && told.st_nlink > 2) return static_cast<std::int64_t>(told.st_nlink) - 2;
  return count_entries(kFolder);
}

std::int64_t resident_kib() {
  // The file is read without a stream, whose buffer and locale would double the cost of measuring.
  std::array<char, 128> text{};
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t size = ::read(file, text.data(), text.size() - 1);
  ::close(file);
  long long resident = 0;  // in pages
  if (size <= 0 || std::sscanf(text.data(), "%*d %lld", &resident) != 1) return 0;
  return resident * sysconf(_SC_PAGESIZE) / 1024;
}

}  // namespace

CaughtError describe_current_exception(FailurePhase phase) {
  CaughtError out;
  out.failure.phase = phase;
  out.frames = throw_site_of_current_exception();
  const std::string type = current_type_name();
  try {
    throw;
  } catch (const CommError& e) {
    out.failure.kind = to_failure_kind(e.kind());
    out.failure.text = e.what();
  } catch (const BackendUnsupported& e) {
    out.failure.kind = FailureKind::unsupported;
    out.failure.text = e.what();
  } catch (const RunnerError& e) {
    out.failure = e.failure();
    out.failure.phase = phase;
    out.failure.summary = summary_of(e.what());
    out.frames.clear();  // the text already names the place
    return out;
  } catch (const c10::Error& e) {
    // c10::Error's own backtrace is used if ours is missing, because the error was thrown on another thread.
    out.failure.text = fmt::format("{}: {}", type, out.frames.empty() ? e.what() : e.what_without_backtrace());
  } catch (const std::exception& e) {
    out.failure.text = fmt::format("{}: {}", type, e.what());
  } catch (...) {
    out.failure.text = fmt::format("{}: not derived from std::exception", type);
  }
  out.failure.summary = summary_of(out.failure.text);
  return out;
}

void die_of_current_exception(int rank, std::string_view what) {
  const std::string why = describe_current_exception(FailurePhase::run).failure.text;
  fmt::print(stderr, "cp-pool-worker: rank {}: {}: {}\n", rank, what, why);
  std::fflush(nullptr);
  tell_ending(1);
  _exit(1);
}

Failure with_stack_trace(const CaughtError& caught) {
  Failure out = caught.failure;
  if (!caught.frames.empty()) out.text += fmt::format("\nthrown from:\n{}", resolve_frames(caught.frames));
  out.text = protocol::cut_text(out.text, protocol::kMaxErrorBytes);
  return out;
}

void take_report(RankReport report, RankOutcome& outcome) {
  outcome.verdict = report.outcome;
  outcome.can_diagnose = report.judged != nullptr;
  for (Check& check : report.checks) check.rank = outcome.rank;
  report.timings_ms.merge(outcome.timings_ms);
  CaseReport& part = report;
  static_cast<CaseReport&>(outcome) = std::move(part);
}

Failure failure_alone(const Declined& declined, const Failure& met) {
  Failure alone = declined.alone();
  if (met.kind == FailureKind::communication) alone.summary += fmt::format(" ({})", met.summary);
  return alone;
}

void write_fence(std::int64_t seq) {
  std::fflush(nullptr);
  const std::string fence = protocol::format_fence(seq);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, fence.data(), fence.size());
}

protocol::Hygiene measure_hygiene(int rank) {
  return {rank, resident_kib(), open_descriptors(), threads()};
}

}  // namespace cp_pool
