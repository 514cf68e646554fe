#include "driver/cli/shell/line_editor.h"

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cwchar>
#include <fcntl.h>
#include <fstream>
#include <histedit.h>
#include <poll.h>
#include <stdexcept>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/unique_fd.h"
#include "driver/cli/program_paths.h"
#include "driver/cli/shell/shell_completion.h"
#include "driver/report/output_file.h"
#include "driver/report/text_format.h"

#ifdef __SANITIZE_ADDRESS__
// libedit copies the names of added functions by wcsdup and never frees them.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "leak:wcsdup";
}
#endif

namespace cp_pool {
namespace {

constexpr mode_t kOwnerOnlyHistory = 0600;

// Writes the text in one piece, at the end of the file with O_APPEND, because two shells may write at once.
void write_history(const std::filesystem::path& file, int flags, const std::string& text) {
  const UniqueFd fd{::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, kOwnerOnlyHistory)};
  if (!fd) fail_to_write(file.string(), errno);
  write_all(fd.get(), text, file.string());
}

volatile std::sig_atomic_t interrupted = 0;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): of a handler

void note_interrupt(int /*signal*/) {
  interrupted = 1;
}

}  // namespace

std::optional<std::filesystem::path> shell_history_file() {
  const auto folder = state_folder();
  return folder ? std::optional{*folder / "shell_history"} : std::nullopt;
}

ShellHistory::ShellHistory(std::optional<std::filesystem::path> file) : file_(std::move(file)) {
  std::ifstream in{file_.value_or("")};
  for (std::string line; std::getline(in, line);) lines_.push_back(std::move(line));
  if (lines_.size() <= kMostShellHistory) return;
  const bool long_file = lines_.size() > 2 * kMostShellHistory;
  lines_.erase(lines_.begin(), lines_.end() - kMostShellHistory);
  if (!long_file) return;
  try {
    write_history(*file_, O_TRUNC, fmt::format("{}\n", fmt::join(lines_, "\n")));
  } catch (const OutputError&) {
    return;  // reported when the next line is added
  }
}

std::string ShellHistory::add(const std::string& line) {
  if (!lines_.empty() && lines_.back() == line) return "";
  lines_.push_back(line);
  if (lost_ || !file_) return "";
  try {
    std::error_code ignored;  // if the folder cannot be made, the error of the file says why
    std::filesystem::create_directories(file_->parent_path(), ignored);
    write_history(*file_, O_APPEND, line + '\n');
  } catch (const OutputError& e) {
    lost_ = true;
    return e.what();
  }
  return "";
}

struct LineEditor::Parts {
  Complete complete;
  std::string prompt;
  struct sigaction sigint_before{};
  EditLine* editor = nullptr;
  History* history = nullptr;
  // The terminal, opened again as non-blocking: Ctrl-C discards typed input, also between a poll that sees it and the
  // read.
  UniqueFd input{::open("/proc/self/fd/0", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)};

  static Parts& of(EditLine* editor) {
    void* out = nullptr;
    el_get(editor, EL_CLIENTDATA, &out);
    return *static_cast<Parts*>(out);
  }

  // Waits for a byte while SIGINT is let through. SIGINT is blocked at all other times while a line is edited, so none
  // is missed between a check and the wait. Returns false if interrupted.
  static bool wait_for_input() {
    sigset_t with_interrupts;
    ::sigprocmask(SIG_SETMASK, nullptr, &with_interrupts);
    sigdelset(&with_interrupts, SIGINT);
    while (interrupted == 0) {
      pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
      if (::ppoll(&input, 1, nullptr, &with_interrupts) > 0) return true;
    }
    return false;
  }

  // Reads the next character. Returns 1, or 0 at the end of the input, or -1 on an error or an interrupt.
  static int get_character(EditLine* editor, wchar_t* out) {
    std::mbstate_t state{};
    for (;;) {
      if (!wait_for_input()) {
        errno = EINTR;
        return -1;
      }
      char byte = 0;
      const UniqueFd& input = of(editor).input;
      const ssize_t size = ::read(input ? input.get() : STDIN_FILENO, &byte, 1);
      if (size < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (size <= 0) return static_cast<int>(size);
      constexpr auto kIncomplete = static_cast<std::size_t>(-2);
      constexpr auto kBad = static_cast<std::size_t>(-1);
      const std::size_t used = std::mbrtowc(out, &byte, 1, &state);
      if (used == kIncomplete) continue;
      if (used != kBad) return 1;
      state = {};  // no character of this locale, so it is skipped
    }
  }

  static unsigned char on_tab(EditLine* editor, int /*key*/) {
    const LineInfo* const line = el_line(editor);
    const std::string typed{line->buffer, line->cursor};
    const std::string word = last_word(typed);
    const std::vector<Candidate> candidates = of(editor).complete(typed);
    if (candidates.empty()) return CC_REFRESH_BEEP;
    std::string rest = common_beginning(candidates).substr(word.size());
    if (candidates.size() == 1 && !candidates.front().word.ends_with('=') && !candidates.front().word.ends_with('/')) {
      rest += ' ';
    }
    if (!rest.empty()) return el_insertstr(editor, rest.c_str()) == 0 ? CC_REFRESH : CC_REFRESH_BEEP;
    int columns = 0;
    el_get(editor, EL_GETTC, "co", &columns);
    std::fputs(("\n" + candidate_columns(candidates, static_cast<std::size_t>(columns))).c_str(), stdout);
    std::fflush(stdout);
    return CC_REDISPLAY;
  }

  static char* show_prompt(EditLine* editor) { return of(editor).prompt.data(); }
};

LineEditor::LineEditor(Complete complete) : parts_(std::make_unique<Parts>()) {
  parts_->complete = std::move(complete);
  ::sigaction(SIGINT, nullptr, &parts_->sigint_before);
  std::setlocale(LC_CTYPE, "");  // for the bytes of characters
  parts_->history = history_init();
  parts_->editor = el_init("cp-pool", stdin, stdout, stderr);
  if (parts_->history == nullptr || parts_->editor == nullptr) throw std::runtime_error("libedit does not start");
  HistEvent event;
  history(parts_->history, &event, H_SETSIZE, static_cast<int>(kMostShellHistory));
  EditLine* const editor = parts_->editor;
  el_set(editor, EL_CLIENTDATA, static_cast<void*>(parts_.get()));
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_SIGNAL, 1);  // so that Ctrl-Z gives the terminal back
  el_set(editor, EL_HIST, history, parts_->history);
  el_set(editor, EL_PROMPT, &Parts::show_prompt);
  el_set(editor, EL_GETCFN, &Parts::get_character);
  el_set(editor, EL_ADDFN, "cp-pool-complete", "Complete the word", &Parts::on_tab);
  el_set(editor, EL_BIND, "^I", "cp-pool-complete", nullptr);
  el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_source(editor, nullptr);  // ~/.editrc
}

LineEditor::~LineEditor() {
  if (parts_->editor != nullptr) el_end(parts_->editor);
  if (parts_->history != nullptr) history_end(parts_->history);
  ::sigaction(SIGINT, &parts_->sigint_before, nullptr);
}

std::optional<std::string> LineEditor::read(const std::string& prompt) {
  parts_->prompt = prompt;
  sigset_t interrupt;
  sigset_t before;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  ::sigprocmask(SIG_BLOCK, &interrupt, &before);
  interrupted = 0;  // a SIGINT that came before was meant for a command
  struct sigaction note{};
  note.sa_handler = note_interrupt;
  note.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &note, nullptr);
  // Done before the prompt is shown: until then the terminal takes a Ctrl-D for the end of a line and not for a key.
  el_set(parts_->editor, EL_PREP_TERM, 1);
  int count = 0;
  const char* const line = el_gets(parts_->editor, &count);
  const bool dropped = interrupted != 0;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (dropped || line == nullptr || count <= 0) {
    std::fputs(dropped ? "^C\n" : "\n", stdout);
    std::fflush(stdout);
    return dropped ? std::optional<std::string>("") : std::nullopt;
  }
  std::string text{line, static_cast<std::size_t>(count)};
  text.erase(text.find_last_not_of("\r\n") + 1);
  return text;
}

void LineEditor::remember(const std::string& line) {
  HistEvent event;
  history(parts_->history, &event, H_ENTER, line.c_str());
}

std::string common_beginning(const std::vector<Candidate>& candidates) {
  if (candidates.empty()) return "";
  std::string_view common = candidates.front().word;
  for (const Candidate& candidate : candidates) {
    const auto difference = std::ranges::mismatch(common, candidate.word);
    common = common.substr(0, static_cast<std::size_t>(difference.in1 - common.begin()));
  }
  return std::string{common};
}

std::string candidate_columns(const std::vector<Candidate>& candidates, std::size_t columns) {
  constexpr std::size_t kGap = 2;
  const std::string common = common_beginning(candidates);
  const std::size_t shown_from = common.rfind('/') + 1;  // npos + 1 is 0
  std::vector<std::string> words;
  std::size_t width = 0;
  for (const Candidate& candidate : candidates) {
    words.push_back(candidate.word.substr(shown_from));
    width = std::max(width, width_of(words.back()) + kGap);
  }
  const std::size_t in_a_row = std::max<std::size_t>(1, columns / std::max<std::size_t>(width, 1));
  const std::size_t rows = (words.size() + in_a_row - 1) / in_a_row;
  std::string out;
  for (std::size_t row = 0; row < rows; ++row) {
    std::string line;
    for (std::size_t i = row; i < words.size(); i += rows) {
      line.append(line.empty() ? 0 : width - width_of(words[i - rows]), ' ');
      line += words[i];
    }
    out += line + '\n';
  }
  return out;
}

}  // namespace cp_pool
