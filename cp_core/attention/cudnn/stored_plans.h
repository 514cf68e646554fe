// Plans of cuDNN from a folder of earlier processes' plans, or built and left there for later ones.
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

// The graph, as text that differs if any of it does.
std::string key_of(const CudnnGraph& graph);

// What makes plans: cuDNN, or its double in a test. As build_cudnn_plan, load_cudnn_plan and cudnn_plan_environment.
struct PlanMaker {
  std::function<std::unique_ptr<const CudnnPlan>(const CudnnGraph&)> build;
  std::function<std::unique_ptr<const CudnnPlan>(const PlanStore::Bytes&)> load;
  std::function<std::string()> environment;
};

class StoredPlans {
 public:
  // Without a folder each plan is built, and none is kept.
  StoredPlans(PlanMaker maker, const std::optional<std::filesystem::path>& folder);
  StoredPlans(const StoredPlans&) = delete;
  StoredPlans& operator=(const StoredPlans&) = delete;
  // Writes the plans that are still to be written.
  ~StoredPlans();

  // Any thread. A plan that is stored but not taken back is built, and stored anew. What cannot be stored is told on
  // stderr, once. Throws as PlanMaker::build: refusals are not stored, since one for want of memory looks like any
  // other.
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
  // The user's cache folder may be on a slow disk of the network, and the caller waits for its plan.
  std::mutex mutex_;
  std::condition_variable_any more_;
  std::deque<File> files_;
  std::jthread writer_;  // from the first file on
};

}  // namespace cp_pool
