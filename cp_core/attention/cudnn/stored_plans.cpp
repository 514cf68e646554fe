#include "cp_core/attention/cudnn/stored_plans.h"

#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace cp_pool {

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

StoredPlans::~StoredPlans() = default;

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
    if (!told_.exchange(true)) {
      fmt::print(stderr, "cp-pool-worker: plan store: a plan could not be stored: {}\n", error.what());
    }
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
