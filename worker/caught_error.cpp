#include "worker/caught_error.h"

#include <cstdio>
#include <cxxabi.h>
#include <exception>
#include <string>
#include <typeinfo>
#include <unistd.h>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "cases/demangle.h"
#include "cp_core/attention/backend_unsupported.h"
#include "cp_core/comm/communicator.h"
#include "worker/lifeline.h"
#include "worker/protocol/text_clean.h"
#include "worker/runner_error.h"
#include "worker/throw_trace.h"

namespace cp_pool {

namespace {

constexpr std::size_t kMaxSummaryBytes = 1000;

std::string current_type_name() {
  const std::type_info* const type = abi::__cxa_current_exception_type();
  return type == nullptr ? "unknown exception" : demangled(type->name());
}

FailureKind to_failure_kind(CommError::Kind kind) {
  switch (kind) {
    case CommError::Kind::timeout:
      return FailureKind::timeout;
    case CommError::Kind::aborted:
      return FailureKind::aborted;
    case CommError::Kind::failed:
      break;
  }
  return FailureKind::communication;
}

std::string summary_of(std::string_view text) {
  return protocol::cut_text(protocol::first_line(text), kMaxSummaryBytes);
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
    out.failure.kind = e.kind();
    out.failure.text = e.text();
    out.failure.collective = e.collective();
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

}  // namespace cp_pool
