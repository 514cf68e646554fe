// Stores blobs of bytes that are expensive to make in a folder, by key, for later processes. Any number of processes
// and threads may use the folder at once. An error with a file is never thrown, since the blob can be made again; the
// first of its kind in a process is reported on stderr.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace cp_pool {

class PlanStore {
 public:
  using Bytes = std::vector<std::uint8_t>;

  // folder: created by the first write. If its files have more than `most_bytes` together, the least recently used are
  // removed; the first of every `writes_a_look` writes checks that.
  explicit PlanStore(std::filesystem::path folder, std::uintmax_t most_bytes = std::uintmax_t{512} << 20U,
                     int writes_a_look = 64);

  // Returns the blob, or nullopt if there is none. A file that is damaged, or holds another key's blob, is removed.
  [[nodiscard]] std::optional<Bytes> read(const std::string& key);
  // Whether a write makes sense: there is no file yet, and none of this process's writes has failed.
  [[nodiscard]] bool lacks(const std::string& key) const;
  // Writes the file atomically.
  void write(const std::string& key, const Bytes& bytes);
  // Removes the file of a blob that cannot be used. why: the reason, for stderr.
  void discard(const std::string& key, const std::string& why);

  [[nodiscard]] std::filesystem::path file_of(const std::string& key) const;

 private:
  void write_file(const std::string& key, const Bytes& bytes);
  void drop_oldest() const;

  std::filesystem::path folder_;
  std::uintmax_t most_bytes_;
  int writes_a_look_;
  std::atomic<int> writes_ = 0;
  std::atomic<bool> write_failed_ = false;
  std::atomic<bool> told_discarded_ = false;
};

// Returns the folder that CP_POOL_PLAN_STORE chooses: none for "off"; cp-pool/cudnn-plans in the user's cache folder
// ($XDG_CACHE_HOME, else ~/.cache) for "on", empty or unset; any other value is the folder itself. Returns nullopt if
// the user has no cache folder. The store is on by default, since loaded plans halve a run (docs/performance.md).
std::optional<std::filesystem::path> plan_store_folder();

}  // namespace cp_pool
