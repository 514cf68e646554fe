#include "cp_core/attention/cudnn/cudnn_batch_plans.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include <ATen/Context.h>
#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>

#include "cp_core/attention/backend_unsupported.h"
#include "cp_core/attention/cudnn/cudnn_graphs.h"
#include "cp_core/attention/cudnn/plan_store.h"
#include "cp_core/attention/tile_batches.h"
#include "cp_core/lru_cache.h"

namespace cp_pool {
namespace {

// Keeps plans of cuDNN in memory and, where plan_store_folder() names a folder, on disk for later processes.

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
      const auto* entry = entries_.find(key);
      found = entry != nullptr;
      if (found) {
        plan = *entry;
      } else {
        plan = promise.get_future().share();
        entries_.keep(key, plan, /*weight=*/1);
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
  void build(const Key& key, std::promise<PlanPtr>& promise) {
    try {
      promise.set_value(plans_.get(key.graph));
    } catch (const BackendUnsupported&) {
      promise.set_exception(std::current_exception());
    } catch (...) {
      // Any other error is not remembered: the next try may succeed.
      promise.set_exception(std::current_exception());
      const std::lock_guard lock(mutex_);
      entries_.forget(key);
    }
  }

  StoredPlans plans_{{.build = build_cudnn_plan, .load = load_cudnn_plan, .environment = cudnn_plan_environment},
                     plan_store_folder()};
  std::mutex mutex_;
  // An entry may be dropped at any time: callers that use a plan, or wait for it, hold a reference of their own.
  LruCache<Key, std::shared_future<PlanPtr>> entries_{kMostPlans};
};

Cache& cache() {
  // Never destroyed: cuDNN may be gone before static objects are.
  static auto* cache = new Cache();
  return *cache;
}

// Returns the plan of this graph on the current device, and loads or builds it if it is not in memory. Callable from
// any thread; a thread that asks for a plan which another is building waits for it. Throws as build_cudnn_plan; a
// refusal is remembered like a plan.
std::shared_ptr<const CudnnPlan> cudnn_plan(const CudnnGraph& graph) {
  return cache().get({.device = c10::cuda::current_device(), .graph = graph});
}

// True if the plan of this graph is in memory, refused or being built.
bool cudnn_plan_is_known(const CudnnGraph& graph) {
  return cache().knows({.device = c10::cuda::current_device(), .graph = graph});
}

// Returns the plan of the first graph that cuDNN does not refuse. If it refuses all, throws one BackendUnsupported that
// quotes every refusal.
GraphPlan first_plan(const std::vector<CudnnGraph>& graphs) {
  std::string refusals;
  for (const CudnnGraph& graph : graphs) {
    try {
      return {.graph = graph, .plan = cudnn_plan(graph)};
    } catch (const BackendUnsupported& refusal) {
      refusals += refusals.empty() ? refusal.what() : fmt::format("; {}", refusal.what());
    }
  }
  throw BackendUnsupported(refusals);
}

bool is_deterministic() {
  return at::globalContext().deterministicAlgorithms();
}

// The graphs that can compute a batch, the best first.
std::vector<CudnnGraph> graphs_of(const CudnnBatch& batch, Pass pass, bool deterministic, bool dbias) {
  return pass == Pass::forward ? batch.forward_graphs() : batch.backward_graphs(deterministic, dbias);
}

// Puts each tile into a batch of its own.
std::vector<TileBatch> single_tiles(const std::vector<Tile>& tiles) {
  std::vector<TileBatch> batches;
  batches.reserve(tiles.size());
  for (const Tile& tile : tiles) batches.push_back({tile});
  return batches;
}

// Threads that build plans at once; cuDNN needs tens of milliseconds of one core for a plan.
constexpr std::size_t kPlanThreads = 8;

// Everything that the calls for these plans of tiles depend on.
std::vector<std::int64_t> signature(std::span<const TilePlan> plans, const AttentionOperands& like, Pass pass) {
  std::vector<std::int64_t> key{static_cast<std::int64_t>(pass), is_deterministic() ? 1 : 0,
                                static_cast<std::int64_t>(like.q.scalar_type())};
  for (const at::Tensor& tensor : {like.q, like.k, like.v, like.bias}) {
    if (tensor.defined()) key.insert(key.end(), tensor.sizes().begin(), tensor.sizes().end());
  }
  for (const TilePlan& plan : plans) {
    for (const TileGroup& group : plan) {
      for (const Tile& tile : group.tiles) {
        key.insert(key.end(), {tile.q_row, tile.k_row, tile.m, tile.n, tile.left, tile.right});
      }
    }
  }
  return key;
}

// Whether the key is new. After kMostKeys keys all of them are forgotten.
bool first_time(std::vector<std::int64_t> key) {
  constexpr std::size_t kMostKeys = 512;
  static std::mutex mutex;
  static std::set<std::vector<std::int64_t>> seen;
  const std::lock_guard lock(mutex);
  if (seen.size() >= kMostKeys) seen.clear();
  return seen.insert(std::move(key)).second;
}

// The graphs of all calls that have no plan yet. Each is given as the list of alternatives that first_plan takes.
std::vector<std::vector<CudnnGraph>> missing_graphs(std::span<const TilePlan> plans, const AttentionOperands& like,
                                                    Pass pass, bool deterministic) {
  std::map<CudnnGraph, std::vector<CudnnGraph>> missing;
  const bool bias = like.bias.defined();
  const bool dbias = bias && like.bias.size(2) > 1;
  for (const TilePlan& plan : plans) {
    for (const TileGroup& group : plan) {
      for (const TileGroup& part : cudnn_parts(group, bias)) {
        for (const TileBatch& tiles : bias ? single_tiles(part.tiles) : split_by_keys(part.tiles)) {
          const CudnnBatch batch(tiles, like);
          auto graphs = graphs_of(batch, pass, deterministic, dbias);
          if (!cudnn_plan_is_known(graphs.front())) missing.emplace(graphs.front(), std::move(graphs));
        }
      }
    }
  }
  std::vector<std::vector<CudnnGraph>> result;
  result.reserve(missing.size());
  for (auto& [first, graphs] : missing) result.push_back(std::move(graphs));
  return result;
}

// Runs the pieces on this thread and on others, and waits for all of them.
void do_at_once(const std::vector<Preparation>& pieces) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&pieces, &next] {
    for (std::size_t i = next++; i < pieces.size(); i = next++) {
      try {
        pieces[i]();
      } catch (const std::exception&) {
        // The call that needs the plan meets the error: a refusal is remembered, and anything else is tried again.
      }
    }
  };
  std::vector<std::jthread> threads;
  for (std::size_t i = 1; i < std::min(kPlanThreads, pieces.size()); ++i) threads.emplace_back(work);
  work();
}

}  // namespace

std::vector<PlannedBatch> plan_batches(const TileGroup& group, const AttentionOperands& operands, Pass pass) {
  std::vector<PlannedBatch> planned;
  const auto plan = [&](const TileBatch& tiles) {
    CudnnBatch batch(tiles, operands);
    if (batch.ragged() && !batch.offsets_fit()) throw BackendUnsupported("ragged tensors of more than 2^31 elements");
    auto built = first_plan(graphs_of(batch, pass, is_deterministic(), /*dbias=*/false));
    planned.push_back({.batch = std::move(batch), .plan = std::move(built)});
  };
  for (const TileBatch& tiles : split_by_keys(group.tiles)) {
    try {
      plan(tiles);
    } catch (const BackendUnsupported&) {
      if (tiles.size() == 1) throw;
      for (const TileBatch& tile : single_tiles(tiles)) plan(tile);
    }
  }
  return planned;
}

PlannedBatch plan_bias_tile(const Tile& tile, const AttentionOperands& operands, Pass pass, bool dbias) {
  // For a graph of one query cuDNN takes a kernel without a backward, and the ragged graph that avoids it takes no
  // bias.
  if (tile.m == 1) throw BackendUnsupported("cuDNN takes no bias for a single query");
  CudnnBatch batch({tile}, operands);
  auto plan = first_plan(graphs_of(batch, pass, is_deterministic(), dbias));
  return {.batch = std::move(batch), .plan = std::move(plan)};
}

void build_plans_ahead(std::span<const TilePlan> plans, const AttentionOperands& like, Pass pass) {
  if (!first_time(signature(plans, like, pass))) return;
  do_at_once(plan_preparations(plans, like, pass, is_deterministic()));
}

std::vector<Preparation> plan_preparations(std::span<const TilePlan> plans, const AttentionOperands& like, Pass pass,
                                           bool deterministic) {
  std::vector<Preparation> pieces;
  for (auto& graphs : missing_graphs(plans, like, pass, deterministic)) {
    pieces.emplace_back([graphs = std::move(graphs), device = c10::cuda::current_device()] {
      c10::cuda::set_device(device);
      // If another thread has asked for the plan meanwhile, that thread builds it.
      if (!cudnn_plan_is_known(graphs.front())) (void)first_plan(graphs);
    });
  }
  return pieces;
}

}  // namespace cp_pool
