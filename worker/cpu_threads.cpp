#include "worker/cpu_threads.h"

#include <algorithm>
#include <cstdlib>

#include <ATen/Parallel.h>

#include "worker/protocol/host_resources.h"

namespace cp_pool {

namespace {

// Multiplications of the forward's two products, without a mask, for which one thread is used. At a few multiplications
// per nanosecond a thread needs a tenth of a second for them and for the other operations of such a case.
constexpr double kWorkOfAThread = 1U << 26U;

}  // namespace

int share_of_cores(int ranks_on_host) {
  return std::max(1, protocol::usable_cores() / ranks_on_host);
}

int threads_for(const Case& c, int share) {
  const double scores = static_cast<double>(c.batch) * static_cast<double>(c.heads) * static_cast<double>(c.seqlen_q) *
                        static_cast<double>(c.seqlen_kv);
  const double of_a_rank = scores * static_cast<double>(c.head_dim_qk + c.head_dim_v) / c.cp_size;
  return static_cast<int>(std::clamp(of_a_rank / kWorkOfAThread, 1.0, static_cast<double>(share)));
}

void use_threads_for(const Case& c, int ranks_on_host) {
  static const bool user_chose = std::getenv("OMP_NUM_THREADS") != nullptr;
  static const int chosen = at::get_num_threads();
  static const int cores = protocol::usable_cores();  // read from files, and constant
  at::set_num_threads(user_chose ? chosen : threads_for(c, std::max(1, cores / ranks_on_host)));
}

}  // namespace cp_pool
