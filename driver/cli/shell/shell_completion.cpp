#include "driver/cli/shell/shell_completion.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <system_error>

#include "driver/cli/shell/shell_line.h"

namespace cp_pool {
namespace {

using Words = std::vector<std::string>;

// The complete words of the typed text, and its last word.
struct TypedLine {
  Words before = {};
  std::string last;
};

TypedLine read_typed(const std::string& typed) {
  TypedLine out{.last = last_word(typed)};
  std::istringstream in{typed.substr(0, typed.size() - out.last.size())};
  for (std::string word; in >> word;) out.before.push_back(word);
  return out;
}

void offer_verbs(const std::string& typed, std::vector<Candidate>& out) {
  for (const ShellVerbFacts& verb : shell_verbs()) {
    if (verb.name.starts_with(typed)) out.push_back({std::string{verb.name}, std::string{verb.meaning}});
  }
}

// Folds IDs that continue alike into one candidate that ends at their next '/', because there are thousands of IDs.
void fold_ids(std::size_t typed, std::vector<Candidate>& words) {
  if (words.size() == 1) return;
  for (Candidate& candidate : words) {
    const std::size_t slash = candidate.word.find('/', typed);
    if (slash != std::string::npos && !is_field_word(candidate.word))
      candidate = {candidate.word.substr(0, slash + 1), ""};
  }
  std::ranges::stable_sort(words, {}, &Candidate::word);
  const auto doubles = std::ranges::unique(words, {}, &Candidate::word);
  words.erase(doubles.begin(), doubles.end());
}

void offer_files(const std::string& typed, std::vector<Candidate>& out) {
  namespace fs = std::filesystem;
  const std::size_t slash = typed.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : typed.substr(0, slash + 1);
  const std::string begin = typed.substr(folder.size());
  std::error_code ignored;
  for (fs::directory_iterator entry{folder.empty() ? "." : folder, ignored}, end; entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    const bool hidden = name.starts_with('.') && !begin.starts_with('.');
    if (hidden || !name.starts_with(begin)) continue;
    out.push_back({folder + name + (entry->is_directory(ignored) ? "/" : ""), ""});
  }
}

// Returns the command line of cp-pool whose completions are those of the line of the shell.
Words command_line_for(ShellVerb verb, const TypedLine& typed, const ShellContext& context) {
  Words words;
  const auto add = [&](const Words& more) { words.insert(words.end(), more.begin(), more.end()); };
  const auto options =
      std::ranges::find_if(typed.before, [](const std::string& word) { return word.starts_with('-'); });
  const bool option = options != typed.before.end() || typed.last.starts_with('-');
  const bool field = is_field_word(typed.before.empty() ? typed.last : typed.before.front());
  const bool case_is_complete = !typed.before.empty() && !field;
  switch (verb) {
    case ShellVerb::submit:
    case ShellVerb::again:
    case ShellVerb::explain:
      if (!option && (case_is_complete || verb == ShellVerb::again)) return {};
      add({verb == ShellVerb::explain ? "explain" : "submit"});
      add(context.lookup);
      if (!option && field) add({"--set"});
      break;
    case ShellVerb::set:
      add({"submit", "x", "--set"});
      break;
    case ShellVerb::list:
      add({"list"});
      add(context.lookup);
      if (!option) add({"--filter"});
      break;
    case ShellVerb::dump:
      add({"submit"});
      if (!option) add({"--dump"});
      break;
    case ShellVerb::status:
    case ShellVerb::help:
      add({verb == ShellVerb::help ? "help" : "status"});
      break;
    default:
      return {};
  }
  add({options, typed.before.end()});
  add({typed.last});
  return words;
}

}  // namespace

std::string last_word(const std::string& typed) {
  return typed.substr(typed.find_last_of(" \t") + 1);  // npos + 1 is 0
}

std::vector<Candidate> shell_candidates(const std::string& typed, const ShellContext& context,
                                        const AskCandidates& ask) {
  TypedLine line = read_typed(typed);
  std::vector<Candidate> out;
  ShellVerb verb = ShellVerb::submit;  // the verb of a line that begins with a case
  if (line.before.empty()) {
    offer_verbs(line.last, out);
  } else {
    const auto verbs = shell_verbs();
    const auto named = std::ranges::find(verbs, line.before.front(), &ShellVerbFacts::name);
    if (named != verbs.end()) {
      verb = named->verb;
      line.before.erase(line.before.begin());
    }
  }
  if (verb == ShellVerb::unset) {
    for (const std::string& edit : context.edits) {
      const std::string key = edit.substr(0, edit.find('='));
      if (key.starts_with(line.last)) out.push_back({key, ""});
    }
  }
  const bool begins_a_case =
      (verb == ShellVerb::submit || verb == ShellVerb::explain) && line.before.empty() && !line.last.starts_with('-');
  const auto add = [&](const Words& words) {
    Candidates more = ask(words);
    if (more.files) offer_files(line.last, more.words);
    std::ranges::move(more.words, std::back_inserter(out));
  };
  // A case may also be given by its fields.
  if (begins_a_case && !is_field_word(line.last)) add({"submit", "x", "--set", line.last});
  // At the beginning of an empty line, where everything may stand, files and options would crowd the list.
  const bool anything = typed.find_first_not_of(" \t") == std::string::npos;
  if (const Words words = command_line_for(verb, line, context); !words.empty() && !anything) add(words);
  fold_ids(line.last.size(), out);
  return out;
}

}  // namespace cp_pool
