#include "cp_core/attention/cudnn/plan_store.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "cases/text_hash.h"
#include "cases/whole_file.h"

namespace cp_pool {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "cp-pool plan store 1\n";
constexpr std::string_view kExtension = ".plan";
constexpr std::size_t kHexDigits = 16;

// The header before the blob. It holds the whole key, since the file's name is only a hash of it. A checksum of header
// and blob follows the blob.
std::string header_of(const std::string& key) {
  return fmt::format("{}{}\n{}\n", kMagic, key.size(), key);
}

// Returns the contents, empty if the file cannot be read. The size is asked of the open file, since another file may
// take its name meanwhile.
std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? std::streamoff{file.tellg()} : 0;
  if (size <= 0 || !file.seekg(0)) return {};
  std::string text(static_cast<std::size_t>(size), '\0');
  file.read(text.data(), size);
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

// True for a file that a store has written, be it a blob or the draft of one (WholeFile).
bool is_stored(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.size() >= kHexDigits + kExtension.size() &&
         std::all_of(name.begin(), name.begin() + kHexDigits, [](unsigned char c) { return std::isxdigit(c) != 0; }) &&
         std::string_view(name).substr(kHexDigits, kExtension.size()) == kExtension;
}

void print_once(std::atomic<bool>& told, const std::string& what) {
  if (!told.exchange(true)) fmt::print(stderr, "cp-pool-worker: plan store: {}\n", what);
}

}  // namespace

PlanStore::PlanStore(fs::path folder, std::uintmax_t most_bytes, int writes_a_look)
    : folder_(std::move(folder)), most_bytes_(most_bytes), writes_a_look_(writes_a_look) {}

fs::path PlanStore::file_of(const std::string& key) const {
  return folder_ / (text_hash(key) + std::string(kExtension));
}

std::optional<PlanStore::Bytes> PlanStore::read(const std::string& key) {
  const fs::path path = file_of(key);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  const std::string text = contents(path);
  const std::string header = header_of(key);
  if (text.size() < header.size() + kHexDigits || !text.starts_with(header) ||
      text_hash({text.data(), text.size() - kHexDigits}) != std::string_view(text).substr(text.size() - kHexDigits)) {
    discard(key, "the file is damaged or has another key");
    return std::nullopt;
  }
  // Marks the file as used last.
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
  return Bytes(text.begin() + static_cast<std::ptrdiff_t>(header.size()), text.end() - kHexDigits);
}

bool PlanStore::lacks(const std::string& key) const {
  std::error_code ignored;
  return !write_failed_ && !fs::exists(file_of(key), ignored);
}

void PlanStore::discard(const std::string& key, const std::string& why) {
  const fs::path path = file_of(key);
  print_once(told_discarded_, fmt::format("discarded {}, so the plan is built again: {}", path.string(), why));
  std::error_code ignored;
  fs::remove(path, ignored);
}

void PlanStore::write(const std::string& key, const Bytes& bytes) {
  try {
    write_file(key, bytes);
    if (writes_++ % writes_a_look_ == 0) drop_oldest();
  } catch (const std::exception& error) {
    print_once(write_failed_, fmt::format("no more plans are stored: {}", error.what()));
  }
}

void PlanStore::write_file(const std::string& key, const Bytes& bytes) {
  fs::create_directories(folder_);
  const fs::path path = file_of(key);
  std::string text = header_of(key);
  text.append(bytes.begin(), bytes.end());
  text += text_hash(text);
  try {
    WholeFile file(path);
    file.write(text);
    file.keep();
  } catch (const std::system_error& error) {
    throw std::runtime_error(fmt::format("{} cannot be written: {}", path.string(), error.code().message()));
  }
}

// Other processes may do this at the same time, so a file that is gone counts as removed.
void PlanStore::drop_oldest() const {
  struct File {
    fs::path path;
    fs::file_time_type time;
    std::uintmax_t bytes;
  };
  std::vector<File> files;
  std::uintmax_t total = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    std::error_code gone;
    File file{.path = entry.path(), .time = entry.last_write_time(gone), .bytes = 0};
    if (!gone) file.bytes = entry.file_size(gone);
    if (gone || !is_stored(file.path)) continue;
    total += file.bytes;
    files.push_back(std::move(file));
  }
  std::ranges::sort(files, {}, &File::time);
  for (const File& file : files) {
    if (total <= most_bytes_) return;
    std::error_code gone;
    fs::remove(file.path, gone);
    total -= file.bytes;
  }
}

std::optional<fs::path> plan_store_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  std::string chosen = variable("CP_POOL_PLAN_STORE");
  if (chosen.empty()) chosen = "on";
  if (chosen == "off") return std::nullopt;
  if (chosen != "on") return chosen;
  fs::path cache = variable("XDG_CACHE_HOME");
  if (!cache.is_absolute()) cache = fs::path(variable("HOME")) / ".cache";
  if (!cache.is_absolute()) return std::nullopt;
  return cache / "cp-pool" / "cudnn-plans";
}

}  // namespace cp_pool
