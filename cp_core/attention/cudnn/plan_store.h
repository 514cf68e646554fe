// Plans of cuDNN that earlier processes left in a folder.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cp_core/attention/cudnn/cudnn_graphs.h"

namespace cp_pool {

// Stores blobs of bytes that are expensive to make in a folder, by key, for later processes. Any number of processes
// and threads may use the folder at once. An error with a file is never thrown, since the blob can be made again; the
// first of its kind in a process is reported on stderr.
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

// Returns the graph as text. Graphs that differ in any member have different texts.
std::string key_of(const CudnnGraph& graph);

// The functions that make plans: build_cudnn_plan, load_cudnn_plan and cudnn_plan_environment, or their doubles in a
// test.
struct PlanMaker {
  std::function<std::unique_ptr<const CudnnPlan>(const CudnnGraph&)> build;
  std::function<std::unique_ptr<const CudnnPlan>(const PlanStore::Bytes&)> load;
  std::function<std::string()> environment;
};

// Loads plans of cuDNN that are in the folder. Builds the missing ones and leaves them there.
class StoredPlans {
 public:
  // Without a folder every plan is built and none is kept.
  StoredPlans(PlanMaker maker, const std::optional<std::filesystem::path>& folder);
  StoredPlans(const StoredPlans&) = delete;
  StoredPlans& operator=(const StoredPlans&) = delete;
  // Waits for the writer, which writes the plans that are left.
  ~StoredPlans() = default;

  // Callable from any thread. A stored plan that cannot be loaded is built and stored again. The first plan that cannot
  // be stored is reported on stderr. Throws as PlanMaker::build. Refusals are not stored, since one for lack of memory
  // looks like any other.
  std::shared_ptr<const CudnnPlan> get(const CudnnGraph& graph);

 private:
  struct File {
    std::string key;
    PlanStore::Bytes bytes;
  };

  std::shared_ptr<const CudnnPlan> load(const std::string& key);
  void keep(const std::string& key, const CudnnPlan& plan);
  void write_files(const std::stop_token& stop);

  PlanMaker maker_;
  std::optional<PlanStore> store_;
  std::atomic<bool> told_ = false;
  // Files are written by a thread of their own: the user's cache folder may be on a slow network disk, and the caller
  // of get() waits for its plan.
  std::mutex mutex_;
  std::condition_variable_any more_;
  std::deque<File> files_;
  std::jthread writer_;  // started by the first file
};

}  // namespace cp_pool
