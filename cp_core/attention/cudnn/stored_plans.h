// Loads plans of cuDNN that earlier processes left in a folder. Builds the missing ones and leaves them there.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "cp_core/attention/cudnn/cudnn_graphs.h"
#include "cp_core/attention/cudnn/plan_store.h"

namespace cp_pool {

// Returns the graph as text. Graphs that differ in any member have different texts.
std::string key_of(const CudnnGraph& graph);

// The functions that make plans: build_cudnn_plan, load_cudnn_plan and cudnn_plan_environment, or their doubles in a
// test.
struct PlanMaker {
  std::function<std::unique_ptr<const CudnnPlan>(const CudnnGraph&)> build;
  std::function<std::unique_ptr<const CudnnPlan>(const PlanStore::Bytes&)> load;
  std::function<std::string()> environment;
};

class StoredPlans {
 public:
  // Without a folder every plan is built and none is kept.
  StoredPlans(PlanMaker maker, const std::optional<std::filesystem::path>& folder);
  StoredPlans(const StoredPlans&) = delete;
  StoredPlans& operator=(const StoredPlans&) = delete;
  // Waits for the writer, which writes the plans that are left.
  ~StoredPlans();

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
