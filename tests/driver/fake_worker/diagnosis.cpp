#include "tests/driver/fake_worker/diagnosis.h"

#include <csignal>
#include <unistd.h>

#include <fmt/format.h>

#include "tests/driver/fake_worker/faults.h"

namespace cp_pool::fake {

namespace {

void send(const protocol::Event& event) {
  write_all(STDOUT_FILENO, protocol::format_response(event));
}

void send_raw(const std::string& text) {
  write_all(STDOUT_FILENO, fmt::format("\n{}{}\n", protocol::kResponsePrefix, text));
}

}  // namespace

void wait_for_sigusr2() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR2);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  while (::sigwaitinfo(&signals, nullptr) != SIGUSR2) {
  }
}

bool is_diagnosed(const std::string& kind) {
  return kind.starts_with("diag_");
}

protocol::DiagnosisEvent diagnosis_of(const std::string& kind, std::int64_t seq) {
  protocol::DiagnosisEvent out;
  out.seq = seq;
  out.diagnosis.certainty = Certainty::certain;
  out.diagnosis.id = kind;
  out.diagnosis.cause = fmt::format("it is {}", kind);
  out.diagnosis.explains = {"out"};
  return out;
}

void speak_too_early(const std::string& kind, std::int64_t seq) {
  if (kind == "diag_early") send(diagnosis_of("too_early", seq));
}

void diagnose(const std::string& kind, std::int64_t seq, Ranks& ranks) {
  if (kind == "diag_none") return;  // sends no diagnosis, though it promised one; the worker goes on
  if (kind == "diag_hang") hang();
  if (kind == "diag_hang_on_1") ranks.tell(1, "hang");
  if (kind == "diag_deaf") commit_fault("ignore_sigterm");
  if (kind == "diag_sigstop") commit_fault("sigstop");
  if (kind == "diag_exit") _exit(3);
  if (kind == "diag_sigsegv_on_1") ranks.tell(1, "sigsegv");
  if (kind == "diag_daemon") commit_fault("daemon");
  if (kind == "diag_grandchild") commit_fault("setsid_grandchild");
  if (kind == "diag_chatter") commit_fault("chatter_stdout");
  if (kind == "diag_closes_stdout") {
    ::close(STDOUT_FILENO);
    hang();
  }
  if (kind == "diag_late") wait_for_sigusr2();
  if (kind == "diag_garbage") return send_raw("{certainly");
  if (kind == "diag_long_line") return send_raw(std::string(std::size_t{17} << 20U, 'x'));
  if (kind == "diag_second_result") {
    protocol::ResultEvent result;
    result.seq = seq;
    result.outcome = CaseOutcome::pass;
    return send(result);
  }
  if (kind == "diag_unreadable") {
    return send_raw(fmt::format(
        R"({{"event":"diagnosis","seq":{},"diagnosis":{{"certainty":"sure","id":"x","cause":"y"}}}})", seq));
  }
  if (kind == "diag_without_id") {
    protocol::DiagnosisEvent event = diagnosis_of(kind, seq);
    event.diagnosis.id.clear();
    return send(event);
  }
  if (kind == "diag_flood") {
    for (int i = 0; i < 2000; ++i) send(diagnosis_of("flood", seq + 1 + i));
  }
  protocol::DiagnosisEvent event = diagnosis_of(kind, seq);
  event.healthy = kind != "diag_unhealthy";
  if (kind == "diag_huge") event.diagnosis.evidence.assign(1000, std::string(5000, 'x'));
  if (kind == "diag_colours") event.diagnosis.cause = "\x1b[31mred\nand more";
  send(event);
  if (kind == "diag_twice") send(diagnosis_of("second", seq));
  if (kind == "diag_then_exit") _exit(3);
}

}  // namespace cp_pool::fake
