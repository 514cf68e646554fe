#include "cp_core/attention/cudnn/plan_store.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <limits>
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

std::string key_of(const CudnnGraph& g) {
  // Structured bindings fail to compile when the struct gets a member that is missing here.
  const auto& [backward, deterministic, dtype, batch, heads, kv_heads, m, n, head_dim_qk, head_dim_v, scale, mask,
               row_heads, row_kv_heads, ragged, q_rows, k_rows, q_stride, k_stride, v_stride, out_stride, bias_heads,
               dbias] = g;
  const auto& [bottom_right, left_bound, right_bound, padding] = mask;
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::min();
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {:a} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", backward,
                     deterministic, static_cast<int>(dtype), batch, heads, kv_heads, m, n, head_dim_qk, head_dim_v,
                     scale, bottom_right, left_bound.value_or(kNone), right_bound.value_or(kNone), padding, row_heads,
                     row_kv_heads, ragged, q_rows, k_rows, q_stride, k_stride, v_stride, out_stride, bias_heads, dbias);
}

StoredPlans::StoredPlans(PlanMaker maker, const std::optional<std::filesystem::path>& folder)
    : maker_(std::move(maker)) {
  if (folder) store_.emplace(*folder);
}

std::shared_ptr<const CudnnPlan> StoredPlans::get(const CudnnGraph& graph) {
  if (!store_) return maker_.build(graph);
  const std::string key = fmt::format("{}\n{}", maker_.environment(), key_of(graph));
  if (auto loaded = load(key)) return loaded;
  std::shared_ptr<const CudnnPlan> built = maker_.build(graph);
  keep(key, *built);
  return built;
}

// Returns null if the plan is not stored or cannot be loaded.
std::shared_ptr<const CudnnPlan> StoredPlans::load(const std::string& key) {
  const auto bytes = store_->read(key);
  if (!bytes) return nullptr;
  try {
    return maker_.load(*bytes);
  } catch (const std::exception& error) {
    store_->discard(key, error.what());
    return nullptr;
  }
}

// Serialises the plan before any caller can execute it, since cuDNN does not promise that both may happen at once.
void StoredPlans::keep(const std::string& key, const CudnnPlan& plan) {
  // Another rank may have stored the plan meanwhile.
  if (!store_->lacks(key)) return;
  try {
    File file{.key = key, .bytes = plan.serialized()};
    const std::lock_guard lock(mutex_);
    files_.push_back(std::move(file));
    if (!writer_.joinable()) writer_ = std::jthread([this](const std::stop_token& stop) { write_files(stop); });
    more_.notify_one();
  } catch (const std::exception& error) {
    print_once(told_, fmt::format("a plan could not be stored: {}", error.what()));
  }
}

void StoredPlans::write_files(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (more_.wait(lock, stop, [this] { return !files_.empty(); })) {
    const File file = std::move(files_.front());
    files_.pop_front();
    lock.unlock();
    store_->write(file.key, file.bytes);
    lock.lock();
  }
}

}  // namespace cp_pool
