#include "driver/cli/commands/settled_change.h"

#include <algorithm>
#include <iterator>
#include <system_error>
#include <utility>

namespace cp_pool {

namespace {

namespace fs = std::filesystem;

bool is_missing(const fs::path& file) {
  std::error_code ignored;
  return !fs::exists(file, ignored);
}

bool contains(const std::vector<fs::path>& files, const fs::path& file) {
  return std::ranges::find(files, file) != files.end();
}

}  // namespace

void SettledChange::add_needed(const std::vector<fs::path>& files) {
  watch(files, &needed_);
}

void SettledChange::add(const std::vector<fs::path>& files) {
  watch(files, nullptr);
}

void SettledChange::watch(const std::vector<fs::path>& files, std::vector<fs::path>* needed) {
  std::vector<fs::path> added;
  for (const fs::path& file : files) {
    if (needed != nullptr && !contains(*needed, file)) needed->push_back(file);
    if (!contains(files_, file) && !contains(added, file)) added.push_back(file);
  }
  if (added.empty()) return;
  files_.insert(files_.end(), added.begin(), added.end());
  before_.emplace_back(std::move(added));
}

std::vector<fs::path> SettledChange::look(Time now) {
  missing_.clear();
  std::vector<fs::path> changed;
  for (const FileStamps& stamps : before_) std::ranges::move(stamps.changed(), std::back_inserter(changed));
  if (changed.empty()) {
    seen_.reset();
    return {};
  }
  if (!seen_ || seen_->files().size() != files_.size() || !seen_->changed().empty()) {
    seen_.emplace(files_);
    since_ = now;
  }
  std::vector<fs::path> gone;
  std::ranges::copy_if(changed, std::back_inserter(gone), is_missing);
  std::vector<fs::path> missing;
  std::ranges::copy_if(gone, std::back_inserter(missing),
                       [&](const fs::path& file) { return contains(needed_, file); });
  const auto quiet = now - since_;
  const bool complete = missing.empty() && quiet >= (gone.empty() ? kQuiet : kRemoved);
  if (quiet >= kQuiet) missing_ = std::move(missing);
  if (!complete) return {};
  std::erase_if(changed, [&](const fs::path& file) { return contains(gone, file); });
  if (changed.empty()) accept();
  return changed;
}

void SettledChange::accept() {
  if (!seen_) return;
  // Files are only ever added, so those added after the last look() are at the end.
  std::vector<fs::path> later(files_.begin() + static_cast<std::ptrdiff_t>(seen_->files().size()), files_.end());
  before_.clear();
  before_.push_back(*std::exchange(seen_, std::nullopt));
  if (!later.empty()) before_.emplace_back(std::move(later));
}

}  // namespace cp_pool
