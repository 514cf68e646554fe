// Keeps blobs of bytes that are expensive to make in a folder, by key, for later processes. Any number of processes and
// threads may use it at once. An error with a file is reported on stderr, once in a process, and never thrown: the blob
// is made again.
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

  // folder: created when something is written. Once files have more than `most_bytes` together, the least recently used
  // are removed; the first of every `writes_a_look` writes checks that.
  explicit PlanStore(std::filesystem::path folder, std::uintmax_t most_bytes = std::uintmax_t{512} << 20U,
                     int writes_a_look = 64);

  // nullopt if there is no blob. A file that is damaged, or holds another key's blob, is discarded.
  [[nodiscard]] std::optional<Bytes> read(const std::string& key);
  // Whether a write makes sense: there is no file yet, and none of this process's writes has failed.
  [[nodiscard]] bool lacks(const std::string& key) const;
  // Writes the file atomically.
  void write(const std::string& key, const Bytes& bytes);
  // Removes the file of a blob that is no good.
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

// The folder that CP_POOL_PLAN_STORE names: nothing if it is "off", cp-pool/cudnn-plans in the user's cache folder
// ($XDG_CACHE_HOME, else ~/.cache) if it is "on" or not set, else itself. Nothing if there is no such cache
// folder. It is on unless switched off, since loaded plans halve a run: docs/notes/gpu_start.md.
std::optional<std::filesystem::path> plan_store_folder();

}  // namespace cp_pool
