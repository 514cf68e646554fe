#include "cp_core/attention/cudnn/cudnn_plan_cache.h"

#include <cstddef>
#include <future>
#include <list>
#include <map>
#include <mutex>
#include <utility>

#include <c10/cuda/CUDAFunctions.h>

#include "cp_core/attention/backend_unsupported.h"
#include "cp_core/attention/cudnn/plan_store.h"
#include "cp_core/attention/cudnn/stored_plans.h"

namespace cp_pool {
namespace {

using PlanPtr = std::shared_ptr<const CudnnPlan>;

// A plan takes some hundred KiB of host memory. A full matrix has a few hundred of them.
constexpr std::size_t kMostPlans = 1024;

struct Key {
  int device = 0;
  CudnnGraph graph;

  auto operator<=>(const Key&) const = default;
};

class Cache {
 public:
  PlanPtr get(const Key& key) {
    std::promise<PlanPtr> promise;
    std::shared_future<PlanPtr> plan;
    bool found = false;
    {
      const std::lock_guard lock(mutex_);
      const auto entry = entries_.find(key);
      found = entry != entries_.end();
      if (found) {
        order_.splice(order_.end(), order_, entry->second.place);
        plan = entry->second.plan;
      } else {
        plan = promise.get_future().share();
        order_.push_back(key);
        entries_.emplace(key, Entry{.plan = plan, .place = std::prev(order_.end())});
        forget_oldest();
      }
    }
    if (!found) build(key, promise);
    return plan.get();
  }

  bool knows(const Key& key) {
    const std::lock_guard lock(mutex_);
    return entries_.contains(key);
  }

 private:
  struct Entry {
    std::shared_future<PlanPtr> plan;
    std::list<Key>::iterator place;
  };

  void build(const Key& key, std::promise<PlanPtr>& promise) {
    try {
      promise.set_value(plans_.get(key.graph));
    } catch (const BackendUnsupported&) {
      promise.set_exception(std::current_exception());
    } catch (...) {
      // Whatever this is, the next try may do better.
      promise.set_exception(std::current_exception());
      const std::lock_guard lock(mutex_);
      if (const auto entry = entries_.find(key); entry != entries_.end()) forget(entry);
    }
  }

  void forget(std::map<Key, Entry>::iterator entry) {
    order_.erase(entry->second.place);
    entries_.erase(entry);
  }

  // Callers that use a plan, or wait for it, hold a reference of their own.
  void forget_oldest() {
    if (entries_.size() > kMostPlans) forget(entries_.find(order_.front()));
  }

  StoredPlans plans_{{.build = build_cudnn_plan, .load = load_cudnn_plan, .environment = cudnn_plan_environment},
                     plan_store_folder()};
  std::mutex mutex_;
  std::map<Key, Entry> entries_;
  std::list<Key> order_;  // the least lately used first
};

Cache& cache() {
  // Never destroyed: cuDNN may be gone before static objects are.
  static auto* cache = new Cache();
  return *cache;
}

}  // namespace

std::shared_ptr<const CudnnPlan> cudnn_plan(const CudnnGraph& graph) {
  return cache().get({.device = c10::cuda::current_device(), .graph = graph});
}

bool cudnn_plan_is_known(const CudnnGraph& graph) {
  return cache().knows({.device = c10::cuda::current_device(), .graph = graph});
}

}  // namespace cp_pool
