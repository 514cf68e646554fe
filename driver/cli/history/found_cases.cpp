#include "driver/cli/history/found_cases.h"

#include <cctype>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "cases/case_error.h"
#include "cases/case_json.h"
#include "cases/error_reason.h"
#include "cases/file_reader.h"
#include "cases/json_text.h"
#include "cases/text_hash.h"
#include "cases/unique_fd.h"
#include "driver/cli/program_paths.h"
#include "driver/cli/shell_words.h"
#include "driver/core/exit_code.h"
#include "driver/log/events_json.h"
#include "driver/report/output_file.h"

namespace cp_pool {
namespace {

constexpr std::size_t kHashDigits = 10;

// Replaces a word that is a file by its whole path.
std::string whole(const std::string& word) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(word, ignored) ? std::filesystem::canonical(word, ignored).string() : word;
}

// Returns words that identify the worker, the same from any working directory.
std::vector<std::string> identity_of(const WorkerChoice& worker) {
  if (!worker.adapter.empty()) {
    const AdapterPlace place = adapter_place(worker.adapter);
    return {place.file.empty() ? worker.adapter : whole(place.file), place.name};
  }
  if (worker.command.empty()) return {"cp-pool-worker"};
  std::vector<std::string> words = split_words(worker.command).value_or(std::vector{worker.command});
  std::ranges::transform(words, words.begin(), whole);
  return words;
}

// Returns the file name of the last word that is a whole path: my_worker.py for `python my_worker.py --fast`.
std::string name_of(const std::vector<std::string>& identity) {
  std::string name = std::filesystem::path(identity.front()).filename();
  for (const std::string& word : identity) {
    if (word.starts_with('/')) name = std::filesystem::path(word).filename();
  }
  for (char& letter : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '.' || letter == '_';
    if (!plain) letter = '-';
  }
  return name;
}

// Throws CaseError.
Case read_case(const std::string& line, const std::string& file, std::size_t number) {
  const Json json = parse_json_text(line, file, number);
  const std::string source = fmt::format("{}:{}", file, number);
  expect_object(json, JsonPlace(source));
  const auto found = json.find("case");
  if (found == json.end()) JsonPlace(source).key("case").fail("this line has no case");
  return parse_case(*found, fmt::format("{}, case", source));
}

// Waits up to kPatience for another search that is writing a line.
void lock(int fd) {
  constexpr auto kPatience = std::chrono::seconds(1);
  constexpr auto kPause = std::chrono::milliseconds(10);
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  while (lock_for_writing(fd) && std::chrono::steady_clock::now() < limit) std::this_thread::sleep_for(kPause);
}

// Throws OutputError.
void append_line(const std::filesystem::path& file, const std::string& line) {
  const std::string name = file.string();
  std::error_code error;
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), error);
  constexpr mode_t kMode = 0666;  // reduced by the umask
  const UniqueFd fd{::open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, kMode)};
  if (!fd) fail_to_write(name, errno);
  lock(fd.get());
  struct stat status{};
  char last = '\n';
  // If an earlier search died in the middle of its line, this line has to begin with a newline.
  const bool cut = ::fstat(fd.get(), &status) == 0 && status.st_size > 0 &&
                   ::pread(fd.get(), &last, 1, status.st_size - 1) == 1 && last != '\n';
  write_all(fd.get(), (cut ? "\n" : "") + line + '\n', name);
}

Json line_of(const SearchFound& found) {
  return {{"found", utc_timestamp(std::chrono::system_clock::now())},
          {"id", found.id},
          {"how", found.how},
          {"outcome", to_string(found.outcome)},
          {"asked", found.asked},
          {"failed", found.failed},
          {"case", to_json(found.c)}};
}

}  // namespace

std::optional<std::filesystem::path> default_found_file(const WorkerChoice& worker, const std::string& device) {
  const auto folder = state_folder();
  if (!folder) return std::nullopt;
  const std::vector<std::string> identity = identity_of(worker);
  const std::string hash = text_hash(shell_line(identity)).substr(0, kHashDigits);
  return *folder / "found" / fmt::format("{}-{}-{}.jsonl", name_of(identity), device, hash);
}

FoundCases read_found_cases(const std::filesystem::path& file) {
  FoundCases out;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return out;
  std::set<std::string> seen;
  try {
    FileReader in(file.string());
    for (std::string line; in.read_line(line);) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      try {
        const Case c = read_case(line, file.string(), in.line_number());
        if (seen.insert(to_json(c).dump()).second) out.cases.push_back(c);
      } catch (const CaseError& e) {
        out.bad_lines.emplace_back(e.what());
      }
    }
  } catch (const std::system_error& e) {
    throw CommandError(ExitCode::bad_input, "cannot read --found {}: {}", file.string(),
                       error_reason(e.code(), file.string()));
  } catch (const CaseError& e) {  // a line that is too long
    throw CommandError(ExitCode::bad_input, "--found {}: {}", file.string(), e.what());
  }
  return out;
}

FoundSink::FoundSink(EventSink& next, std::filesystem::path file, const std::vector<Case>& known)
    : next_(next), file_(std::move(file)) {
  for (const Case& c : known) known_.insert(to_json(c).dump());
}

void FoundSink::on_event(const Event& event) {
  next_.on_event(event);
  const auto* const found = std::get_if<SearchFound>(&event);
  if (found == nullptr || found->kept || !known_.insert(to_json(found->c).dump()).second) return;
  try {
    append_line(file_, line_of(*found).dump());
  } catch (const OutputError& e) {
    if (!std::exchange(lost_, true)) next_.on_event(OutputLost{.output = "--found", .message = e.what()});
  }
}

}  // namespace cp_pool
