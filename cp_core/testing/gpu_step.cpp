#include "cp_core/testing/gpu_step.h"

#include <algorithm>
#include <cstdlib>

#include <ATen/Context.h>
#include <c10/cuda/CUDAFunctions.h>

#include "cases/comm_facts.h"
#include "cases/lengths.h"
#include "cp_core/builtin/builtin_implementation.h"
#include "cp_core/context_parallel/context_parallel.h"
#include "cp_core/verify/check_outputs.h"
#include "cp_core/verify/expected.h"
#include "cp_core/verify/output_hash.h"

namespace cp_pool::test {
namespace {

// Must be set before cuBLAS is first used, which gives the same bits again only with a workspace of fixed size.
[[maybe_unused]] const int kCublasWorkspace = setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 1);

at::Device own_gpu() {
  return {at::kCUDA, c10::cuda::current_device()};
}

}  // namespace

int gpu_ranks_for(CommType comm) {
  return count_gpus() >= 4 || !facts_of(comm).takes_size({2}) ? 4 : 2;
}

Case gpu_thd_case(CommType comm, Backend backend, int ranks, const std::vector<std::int64_t>& seqlens) {
  Case c;
  c.comm = comm;
  c.backend = backend;
  c.cp_size = ranks;
  c.layout = Layout::thd;
  c.batch = static_cast<std::int64_t>(seqlens.size());
  c.seqlen_q = c.seqlen_kv = std::ranges::max(seqlens);
  c.seqlens = seqlens;
  c.pad_between_seqs = true;
  c.heads = 8;
  c.kv_heads = 4;
  c.head_dim_qk = c.head_dim_v = 64;
  c.causal = true;
  c.deterministic = true;
  return c;
}

GpuStep::GpuStep(const Case& c, const GpuRank& rank, const CpGroups& groups, bool replayed)
    : case_(c),
      groups_(groups),
      lengths_(resolve_lengths(c)),
      canonical_(verify::canonical_problem(c, lengths_)),
      problem_(make_problem(c, lengths_)),
      view_(c, lengths_, rank.rank, rank.size, own_gpu()) {
  problem_.replayed = replayed;
  reset_numeric_state(own_gpu());
  at::globalContext().setDeterministicAlgorithms(c.deterministic, /*warn_only=*/false);
  shards_ = verify::make_shards(c, verify::make_inputs(canonical_, own_gpu()), view_);
}

AttentionForward GpuStep::forward() const {
  return context_parallel_forward(problem_, groups_, attention_inputs(shards_));
}

AttentionGradients GpuStep::backward(const AttentionForward& forward) const {
  return context_parallel_backward(problem_, groups_, attention_inputs(shards_), forward, shards_.dout);
}

verify::Results GpuStep::run() const {
  const AttentionForward done = forward();
  return results_of(done, case_.training ? backward(done) : AttentionGradients{});
}

std::string GpuStep::hash() const {
  const verify::Results results = run();
  groups_.cp->synchronize("a step");
  return verify::hash_of(results);
}

std::vector<Check> GpuStep::check(const verify::Results& results) const {
  const verify::CanonicalInputs inputs = verify::make_inputs(canonical_, own_gpu());
  return verify::check_outputs(case_, verify::compute_expected(canonical_, inputs), view_, results);
}

}  // namespace cp_pool::test
