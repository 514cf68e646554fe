#include "cp_core/cuda/early_start.h"

#include <array>
#include <condition_variable>
#include <cstdint>
#include <dlfcn.h>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "cp_core/cuda/module_path.h"

namespace cp_pool {
namespace {

using Clock = std::chrono::steady_clock;
using UniqueId = std::array<unsigned char, 128>;

// The functions of libcp_core_early.so, which early_module.cpp defines.
class Module {
 public:
  bool load() {
    void* module = dlopen(module_path("libcp_core_early.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) return false;
    return find(module, "cp_pool_early_load_driver", load_driver) && find(module, "cp_pool_early_context", context) &&
           find(module, "cp_pool_early_nccl_id", nccl_id) && find(module, "cp_pool_early_nccl_connect", nccl_connect) &&
           load_driver();
  }

  bool (*load_driver)() = nullptr;
  bool (*context)(int device) = nullptr;
  bool (*nccl_id)(unsigned char* bytes) = nullptr;
  void* (*nccl_connect)(const unsigned char* bytes, int rank, int size) = nullptr;

 private:
  template <typename Function>
  static bool find(void* module, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(module, name));
    return function != nullptr;
  }
};

}  // namespace

std::string nccl_id_key(const std::string& prefix) {
  return prefix + "nccl_id";
}

struct EarlyStart::State {
  State(Rank of, Connect how) : rank(std::move(of)), connect(std::move(how)) {}

  // Runs `body` and records its time under `name`.
  template <typename Body>
  bool timed(const char* name, Body&& body) {
    const auto start = Clock::now();
    const bool good = body();
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    const std::lock_guard lock(mutex);
    times_ms[name] = ms;
    return good;
  }

  void run() {
    const bool loaded = timed("early_load", [&] { return module.load(); });
    finish([&] { libraries_done = true; });
    void* comm = nullptr;
    const bool has_context = loaded && timed("early_context", [&] { return module.context(rank.device); });
    if (has_context && rank.connects) comm = start_nccl();
    finish([&] {
      communicator = comm;
      done = true;
    });
  }

  // Returns null after any failure. The CUDA part decides whether the failure is an error.
  void* start_nccl() {
    try {
      c10::intrusive_ptr<c10d::Store> store;
      UniqueId id{};
      void* comm = nullptr;
      timed("early_store", [&] {
        store = connect();
        return true;
      });
      if (!timed("early_nccl_id", [&] { return share_id(*store, id); })) return nullptr;
      timed("early_nccl_call", [&] {
        comm = module.nccl_connect(id.data(), rank.rank, rank.size);
        return comm != nullptr;
      });
      return comm;
    } catch (const std::exception&) {
      return nullptr;
    }
  }

  bool share_id(c10d::Store& store, UniqueId& id) const {
    const std::string key = nccl_id_key(rank.prefix);
    if (rank.rank == 0) {
      if (!module.nccl_id(id.data())) return false;
      store.set(key, std::vector<std::uint8_t>(id.begin(), id.end()));
      return true;
    }
    store.wait({key}, rank.limit);
    const std::vector<std::uint8_t> bytes = store.get(key);
    if (bytes.size() != id.size()) return false;
    std::copy(bytes.begin(), bytes.end(), id.begin());
    return true;
  }

  template <typename Change>
  void finish(Change&& change) {
    {
      const std::lock_guard lock(mutex);
      change();
    }
    changed.notify_all();
  }

  const Rank rank;
  const Connect connect;
  Module module;
  std::mutex mutex;
  std::condition_variable changed;
  bool libraries_done = false;
  bool done = false;
  void* communicator = nullptr;
  std::map<std::string, double> times_ms;
};

EarlyStart::EarlyStart(Rank rank, Connect connect)
    : state_(std::make_shared<State>(std::move(rank), std::move(connect))) {
  std::thread([state = state_] { state->run(); }).detach();
}

void EarlyStart::await_libraries() const {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->libraries_done; });
}

void* EarlyStart::take_communicator() const {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, state_->rank.limit, [&] { return state_->done; });
  return std::exchange(state_->communicator, nullptr);
}

std::map<std::string, double> EarlyStart::times_ms() const {
  const std::lock_guard lock(state_->mutex);
  return state_->times_ms;
}

}  // namespace cp_pool
